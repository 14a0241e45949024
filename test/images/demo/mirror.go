package main

import (
	"fmt"
	"io"
	"net"
)

// mirror ends when the listener fails. Errors of single connections are ignored.
func mirror(args []string) int {
	l, err := net.Listen("tcp", ":"+arg(args, 0, "8080"))
	if err != nil {
		return fail(err)
	}
	fmt.Println("mirror on", l.Addr())
	for {
		c, err := l.Accept()
		if err != nil {
			return fail(err)
		}
		go func() {
			defer c.Close()
			io.Copy(c, c) // ends when the client has sent all or has gone
		}()
	}
}
