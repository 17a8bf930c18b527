// An S3-compatible server for the tests: everything in memory, one versioned bucket, on loopback. It checks a
// condition and writes under one lock, as S3 promises. Prints its address when it listens; ends with its standard input.
package main

import (
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"
)

const bucket = "guarded"

func main() {
	backend := s3mem.New()
	if err := backend.CreateBucket(bucket); err != nil {
		log.Fatal(err)
	}
	// Versions are the order in which the server itself accepted the writes.
	if err := backend.SetVersioningConfiguration(bucket, gofakes3.VersioningConfiguration{
		Status: gofakes3.VersioningEnabled,
	}); err != nil {
		log.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	go func() {
		// Whoever started us is gone.
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	fmt.Printf("http://%s/%s\n", listener.Addr(), bucket)
	server := gofakes3.New(backend, gofakes3.WithLogger(gofakes3.DiscardLog()))
	log.Fatal(http.Serve(listener, server.Server()))
}
