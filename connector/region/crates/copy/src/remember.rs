//! A choice kept in a file, so that the next process need not measure.
//!
//! The file names what the choice was measured on (CPU model, kernel table, medium) and holds kernel numbers alone:
//! no time, no address. Whatever is wrong with it (missing, torn, for another CPU, naming a kernel this CPU cannot
//! run) means measuring again.

use std::fs;
use std::io::Result;
use std::path::{Path, PathBuf};

use crate::calibrate::{Medium, calibrate};
use crate::choice::{Choice, Stores};
use crate::cpu;
use crate::crc::crc32c;
use crate::kernel::{TABLE_VERSION, by_id};

/// Where a choice came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Read from the file of an earlier measurement.
    Remembered,
    /// Measured now and kept in the file.
    Measured,
    /// Measured now; the file could not be written, the next process measures again.
    MeasuredOnly,
}

/// The choice kept in `folder` for this CPU and medium, or a new measurement that is kept there.
///
/// # Safety
/// As [`calibrate`].
pub unsafe fn remembered(folder: &Path, medium: &Medium) -> (Choice, Origin) {
    let key = key(&cpu::model(), medium.name);
    let path = path(folder, &key);
    if let Some(choice) = fs::read_to_string(&path)
        .ok()
        .and_then(|text| parse(&text, &key))
    {
        return (choice, Origin::Remembered);
    }
    // SAFETY: passed on.
    let choice = unsafe { calibrate(medium) };
    match write(&path, &render(&choice, &key)) {
        Ok(()) => (choice, Origin::Measured),
        Err(_) => (choice, Origin::MeasuredOnly),
    }
}

/// The lines of the file that say what the choice belongs to. Names are kept to one line.
fn key(cpu: &str, medium: &str) -> String {
    let line = |text: &str| text.replace(char::is_control, " ");
    format!(
        "hymcache-copy choice\ncpu {}\ntable {TABLE_VERSION}\nmedium {}\n",
        line(cpu),
        line(medium)
    )
}

fn path(folder: &Path, key: &str) -> PathBuf {
    folder.join(format!("copy-{:08x}", crc32c(0, key.as_bytes())))
}

fn render(choice: &Choice, key: &str) -> String {
    let stores = match choice.get_stores {
        Stores::Ordinary => "ordinary",
        Stores::NonTemporal => "streaming",
    };
    let body = format!(
        "{key}put {}\nget {} {stores}\n",
        choice.put.id, choice.get.id
    );
    format!("{body}crc {:08x}\n", crc32c(0, body.as_bytes()))
}

/// `None` unless the text is exactly what [`render`] writes under this key for kernels this CPU runs.
fn parse(text: &str, key: &str) -> Option<Choice> {
    let mut lines = text.strip_prefix(key)?.lines();
    let kernel = |word: &str| by_id(word.parse().ok()?);
    let put = kernel(lines.next()?.strip_prefix("put ")?)?;
    let (get, stores) = lines.next()?.strip_prefix("get ")?.split_once(' ')?;
    let get_stores = if stores == "ordinary" {
        Stores::Ordinary
    } else {
        Stores::NonTemporal
    };
    let choice = Choice {
        put,
        get: kernel(get)?,
        get_stores,
    };
    (text == render(&choice, key)).then_some(choice)
}

/// Whole or not at all: a reader never sees half a file.
fn write(path: &Path, text: &str) -> Result<()> {
    let temporary = path.with_extension(std::process::id().to_string());
    fs::write(&temporary, text)?;
    fs::rename(&temporary, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn some_choice() -> Choice {
        Choice {
            get_stores: Stores::Ordinary,
            ..Choice::guess()
        }
    }

    #[test]
    fn what_was_written_is_read_back() {
        let (choice, key) = (some_choice(), key("cpu", "dram"));
        let back = parse(&render(&choice, &key), &key).expect("own text");
        assert_eq!(
            (back.put.id, back.get.id, back.get_stores),
            (choice.put.id, choice.get.id, Stores::Ordinary)
        );
    }

    #[test]
    fn any_damaged_byte_means_measuring_again() {
        let key = key("cpu", "dram");
        let good = render(&some_choice(), &key);
        for i in 0..good.len() {
            for flip in [1, 8, 16] {
                let mut bytes = good.clone().into_bytes();
                bytes[i] ^= flip;
                let text = String::from_utf8_lossy(&bytes);
                assert!(parse(&text, &key).is_none(), "byte {i} ^ {flip}: {text}");
            }
            assert!(parse(&good[..i], &key).is_none(), "cut at {i}");
        }
        assert!(parse(&format!("{good}x"), &key).is_none());
    }

    #[test]
    fn a_choice_for_another_cpu_medium_or_table_is_not_taken() {
        let good = render(&some_choice(), &key("cpu", "dram"));
        assert!(parse(&good, &key("other cpu", "dram")).is_none());
        assert!(parse(&good, &key("cpu", "cxl")).is_none());
        let other_table = good.replace(&format!("table {TABLE_VERSION}"), "table 0");
        assert!(parse(&other_table, &key("cpu", "dram")).is_none());
    }

    #[test]
    fn a_kernel_this_cpu_cannot_run_is_not_taken() {
        let key = key("cpu", "dram");
        let body = format!("{key}put 65000\nget 1 ordinary\n");
        let text = format!("{body}crc {:08x}\n", crc32c(0, body.as_bytes()));
        assert!(parse(&text, &key).is_none());
    }

    #[test]
    fn names_cannot_add_lines() {
        assert_eq!(key("a\nput 1", "b\n").lines().count(), 4);
    }
}
