// Command etcd is the upstream server. Its own main package sits in a module with relative replaces, which neither
// `go install` nor a `tool` directive accepts.
package main

import (
	"os"

	"go.etcd.io/etcd/server/v3/etcdmain"
)

func main() { etcdmain.Main(os.Args) }
