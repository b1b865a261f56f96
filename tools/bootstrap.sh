#!/usr/bin/env bash
# Finds or installs uv, then prints its path. A bare Debian has neither pip nor venv for its own Python: python3-venv comes
# from apt, uv from PyPI into the cache folder. Nothing is installed when a fitting uv is already there.
set -euo pipefail
UV_VERSION=0.13.9
cache="${HYMCACHE_CACHE:-$HOME/.cache/hymcache}"
own="$cache/uv-$UV_VERSION/bin/uv"

if [ -x "$own" ] && "$own" --version >/dev/null 2>&1; then echo "$own"; exit 0; fi
if command -v uv >/dev/null 2>&1 && uv --version 2>/dev/null | grep -q "^uv $UV_VERSION"; then command -v uv; exit 0; fi

python=$(command -v python3.11 || command -v python3) || { echo "bootstrap: python3 not found; install Python 3.11 (apt-get install python3)" >&2; exit 1; }
if ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
  if [ "$(id -u)" = 0 ]; then
    echo "bootstrap: installing python3-venv with apt" >&2
    { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq python3-venv; } >&2
  else
    echo "bootstrap: $python has no venv module; run: sudo apt-get install python3-venv" >&2; exit 1
  fi
fi
mkdir -p "$cache"
work=$(mktemp -d "$cache/.uv-XXXXXX"); trap 'rm -rf "$work"' EXIT
echo "bootstrap: installing uv $UV_VERSION from PyPI into $cache" >&2
rm -rf "${own%/bin/uv}"
"$python" -m venv "${own%/bin/uv}" >&2
"${own%/bin/uv}/bin/pip" install -q --disable-pip-version-check "uv==$UV_VERSION" >&2
echo "$own"
