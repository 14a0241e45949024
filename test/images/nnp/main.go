// Command nnp is installed set-uid root in an image: it says which user it runs
// as, which is root only where gaining privileges is allowed.
package main

import (
	"fmt"
	"os"
)

func main() { fmt.Printf("Effective uid: %d\n", os.Geteuid()) }
