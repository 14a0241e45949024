// Command demo is the only program of the demo image: a small web server for demonstrations, and the few verbs that
// tests and probes need in a container without a shell. `demo help` lists them.
package main

import (
	"fmt"
	"os"
	"sort"
	"strconv"
	"time"
)

// verb does one thing and returns the exit code.
type verb struct {
	usage string
	run   func(args []string) int
}

var verbs map[string]verb

func init() {
	verbs = map[string]verb{
		"serve": {"serve [-port N] [-delay D] [-drain D] [-page FILE]: answer HTTP, log a line for each request",
			serve},
		"health": {
			"health [SERVICE] [PORT] [FILE]: serve gRPC health checks; the service is ill while the file is there",
			health,
		},
		"mirror":  {"mirror [PORT]: send back what each connection sends", mirror},
		"sleep":   {"sleep [D]: wait (for ever without D); SIGTERM ends it with code 0", sleep},
		"deaf":    {"deaf [D]: wait and ignore SIGTERM", deaf},
		"exit":    {"exit CODE [D]: end with this code, after D", exit},
		"echo":    {"echo WORD...: print a line", echo},
		"log":     {"log COUNT [D] [SIZE]: print COUNT numbered lines, D apart, of SIZE bytes", logLines},
		"env":     {"env [NAME...]: print the environment, sorted, or the values of the names", env},
		"cat":     {"cat FILE...: print files", cat},
		"ls":      {"ls PATH...: print mode, owner, size and name of files, of folders their content", list},
		"write":   {"write FILE TEXT: make a file", write},
		"message": {"message CODE TEXT: write TEXT as termination message and end with CODE", message},
		"check":   {"check FILE: code 0 when the file is there, else 1 (an exec probe)", check},
		"clock":   {"clock FILE [D]: write the time into the file, again every D", clock},
		"count":   {"count FILE: add a line to the file and print how many there are", count},
		"get":     {"get URL: print the body of an answer; code 1 unless it is 2xx", get},
		"hog":     {"hog MEBIBYTES: hold this much memory until SIGTERM", hog},
		"rush":    {"rush MEBIBYTES: ignore SIGTERM, take this much memory as fast as can be, and hold it", rush},
		"spin":    {"spin: use one CPU until SIGTERM", spin},
		"orphan":  {"orphan: leave a child to process 1, which has to collect it, then wait", orphan},
	}
}

func main() {
	if len(os.Args) < 2 {
		os.Exit(usage(2))
	}
	v, ok := verbs[os.Args[1]]
	if !ok {
		os.Exit(usage(map[bool]int{true: 0, false: 2}[os.Args[1] == "help"]))
	}
	os.Exit(v.run(os.Args[2:]))
}

func usage(code int) int {
	var lines []string
	for _, v := range verbs {
		lines = append(lines, v.usage)
	}
	sort.Strings(lines)
	for _, l := range lines {
		fmt.Println(" ", l)
	}
	return code
}

// fail prints an error and returns its exit code.
func fail(err error) int {
	fmt.Fprintln(os.Stderr, "demo:", err)
	return 1
}

// arg returns the i-th argument or a default.
func arg(args []string, i int, otherwise string) string {
	if i < len(args) {
		return args[i]
	}
	return otherwise
}

func duration(s string) time.Duration {
	d, err := time.ParseDuration(s)
	if err != nil {
		os.Exit(fail(err))
	}
	return d
}

func number(s string) int {
	n, err := strconv.Atoi(s)
	if err != nil {
		os.Exit(fail(err))
	}
	return n
}
