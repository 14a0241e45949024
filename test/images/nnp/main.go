// Command nnp is installed set-uid root in an image. It prints the user that it runs as. This is root only if gaining
// privileges is allowed.
package main

import (
	"fmt"
	"os"
)

func main() { fmt.Printf("Effective uid: %d\n", os.Geteuid()) }
