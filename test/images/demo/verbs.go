package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"sort"
	"strings"
	"syscall"
	"time"
)

// forever is longer than any test.
const forever = "8760h"

func sleep(args []string) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	wait(ctx, duration(arg(args, 0, forever)))
	return 0
}

func deaf(args []string) int {
	signal.Ignore(syscall.SIGTERM, syscall.SIGINT)
	fmt.Println("deaf")
	wait(context.Background(), duration(arg(args, 0, forever)))
	return 0
}

func exit(args []string) int {
	wait(context.Background(), duration(arg(args, 1, "0s")))
	return number(arg(args, 0, "0"))
}

func echo(args []string) int {
	fmt.Println(strings.Join(args, " "))
	return 0
}

func logLines(args []string) int {
	pause, size := duration(arg(args, 1, "0s")), number(arg(args, 2, "0"))
	for i := range number(arg(args, 0, "1")) {
		line := fmt.Sprintf("line %d", i+1)
		if pad := size - len(line) - 1; pad > 0 {
			line += " " + strings.Repeat("x", pad)
		}
		fmt.Println(line)
		wait(context.Background(), pause)
	}
	return 0
}

func env(args []string) int {
	if len(args) == 0 {
		all := os.Environ()
		sort.Strings(all)
		fmt.Println(strings.Join(all, "\n"))
		return 0
	}
	for _, n := range args {
		v, ok := os.LookupEnv(n)
		if !ok {
			return fail(fmt.Errorf("no %s in the environment", n))
		}
		fmt.Println(v)
	}
	return 0
}

func cat(args []string) int {
	for _, file := range args {
		data, err := os.ReadFile(file)
		if err != nil {
			return fail(err)
		}
		if _, err := os.Stdout.Write(data); err != nil {
			return fail(err)
		}
	}
	return 0
}

func list(args []string) int {
	for _, path := range args {
		info, err := os.Stat(path)
		if err != nil {
			return fail(err)
		}
		show(info, path)
		if !info.IsDir() {
			continue
		}
		entries, err := os.ReadDir(path)
		if err != nil {
			return fail(err)
		}
		for _, e := range entries {
			info, err := e.Info()
			if err != nil {
				return fail(err)
			}
			show(info, path+"/"+e.Name())
		}
	}
	return 0
}

func show(info os.FileInfo, name string) {
	st := info.Sys().(*syscall.Stat_t)
	fmt.Printf("%s %d:%d %d %s\n", info.Mode(), st.Uid, st.Gid, info.Size(), name)
}

func write(args []string) int {
	if len(args) != 2 {
		return usage(2)
	}
	if err := os.WriteFile(args[0], []byte(args[1]), 0o644); err != nil {
		return fail(err)
	}
	return 0
}

func message(args []string) int {
	file := "/dev/termination-log"
	if f, ok := os.LookupEnv("MESSAGE_FILE"); ok {
		file = f
	}
	if err := os.WriteFile(file, []byte(strings.Join(args[min(1, len(args)):], " ")), 0o644); err != nil {
		return fail(err)
	}
	return number(arg(args, 0, "0"))
}

func check(args []string) int {
	if _, err := os.Stat(arg(args, 0, "/")); err != nil {
		return fail(err)
	}
	fmt.Println("ok")
	return 0
}

// clock writes a complete file and renames it, so that a reader never sees a partial one.
func clock(args []string) int {
	if len(args) == 0 {
		return usage(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	every := duration(arg(args, 1, "1s"))
	for ctx.Err() == nil {
		line := "it is " + time.Now().UTC().Format(time.TimeOnly) + " UTC\n"
		if err := os.WriteFile(args[0]+".part", []byte(line), 0o644); err != nil {
			return fail(err)
		}
		if err := os.Rename(args[0]+".part", args[0]); err != nil {
			return fail(err)
		}
		wait(ctx, every)
	}
	return 0
}

func count(args []string) int {
	if len(args) != 1 {
		return usage(2)
	}
	f, err := os.OpenFile(args[0], os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o644)
	if err != nil {
		return fail(err)
	}
	defer f.Close()
	if _, err := f.WriteString("once\n"); err != nil {
		return fail(err)
	}
	data, err := os.ReadFile(args[0])
	if err != nil {
		return fail(err)
	}
	fmt.Println(bytes.Count(data, []byte("\n")))
	return 0
}

func get(args []string) int {
	client := &http.Client{Timeout: 10 * time.Second}
	resp, err := client.Get(arg(args, 0, "http://localhost:8080/"))
	if err != nil {
		return fail(err)
	}
	defer resp.Body.Close()
	if _, err := io.Copy(os.Stdout, resp.Body); err != nil {
		return fail(err)
	}
	if resp.StatusCode/100 != 2 {
		return fail(fmt.Errorf("answer %s", resp.Status))
	}
	return 0
}

func hog(args []string) int {
	held := make([]byte, number(arg(args, 0, "64"))<<20)
	for i := 0; i < len(held); i += os.Getpagesize() {
		held[i] = 1 // a page is allocated only when it is written to
	}
	fmt.Printf("holding %d MiB\n", len(held)>>20)
	code := sleep(nil)
	held[0]++ // keeps it alive until here
	return code
}

// hugePages is MADV_HUGEPAGE: the kernel allocates memory in huge pages.
const hugePages = 14

func rush(args []string) int {
	signal.Ignore(syscall.SIGTERM)
	held, err := syscall.Mmap(-1, 0, number(arg(args, 0, "64"))<<20, syscall.PROT_READ|syscall.PROT_WRITE,
		syscall.MAP_PRIVATE|syscall.MAP_ANON)
	if err != nil {
		return fail(err)
	}
	if err := syscall.Madvise(held, hugePages); err != nil {
		fmt.Println("in small pages:", err)
	}
	for i := 0; i < len(held); i += os.Getpagesize() {
		held[i] = 1
	}
	fmt.Printf("holding %d MiB\n", len(held)>>20)
	wait(context.Background(), duration(forever))
	held[0]++ // keeps it alive until here
	return 0
}

func spin([]string) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	for ctx.Err() == nil {
	}
	return 0
}

// orphan starts a child that starts a grandchild and ends. When the grandchild ends, process 1 must collect it.
func orphan(args []string) int {
	next := map[string][]string{"": {"orphan", "middle"}, "middle": {"exit", "0", "200ms"}}[arg(args, 0, "")]
	child := exec.Command("/proc/self/exe", next...)
	if err := child.Start(); err != nil {
		return fail(err)
	}
	if len(args) > 0 {
		return 0
	}
	if err := child.Wait(); err != nil {
		return fail(err)
	}
	return sleep(nil)
}
