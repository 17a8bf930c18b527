// The etcd server that the bench compares with, built from etcd's own module through the Go module proxy so that
// its version is pinned by go.mod and its content by go.sum.
package main

import (
	"os"

	"go.etcd.io/etcd/server/v3/etcdmain"
)

func main() {
	etcdmain.Main(os.Args)
}
