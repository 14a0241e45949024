package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"
)

// serve is a web server. / returns its name, $MESSAGE and a page. /healthz returns 200, but 503 between a request to
// /break and the next one to /mend. /exit?code=N ends the program.
func serve(args []string) int {
	f := flag.NewFlagSet("serve", flag.ExitOnError)
	port := f.Int("port", 8080, "port to listen on")
	delay := f.Duration("delay", 0, "wait before listening")
	drain := f.Duration("drain", 0, "wait after SIGTERM before ending")
	page := f.String("page", "", "file to show in answers")
	f.Parse(args) // ExitOnError

	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	wait(ctx, *delay)

	var broken atomic.Bool
	var answered atomic.Int64
	name, err := os.Hostname()
	if err != nil {
		return fail(err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		n := answered.Add(1)
		fmt.Printf("%s %s from %s\n", r.Method, r.URL, r.RemoteAddr)
		fmt.Fprintf(w, "hello from %s, request %d\n", name, n)
		if message, ok := os.LookupEnv("MESSAGE"); ok {
			fmt.Fprintln(w, message)
		}
		if *page != "" {
			showPage(w, *page)
		}
	})
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, r *http.Request) {
		if broken.Load() {
			http.Error(w, "broken on request", http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
	})
	mux.HandleFunc("/break", func(http.ResponseWriter, *http.Request) { broken.Store(true) })
	mux.HandleFunc("/mend", func(http.ResponseWriter, *http.Request) { broken.Store(false) })
	mux.HandleFunc("/exit", func(_ http.ResponseWriter, r *http.Request) {
		fmt.Println("exit on request")
		os.Exit(number(arg(r.URL.Query()["code"], 0, "0")))
	})

	l, err := net.Listen("tcp", fmt.Sprintf(":%d", *port))
	if err != nil {
		return fail(err)
	}
	fmt.Printf("%s listening on %s\n", name, l.Addr())
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	go func() {
		<-ctx.Done()
		fmt.Println("terminating")
		wait(context.Background(), *drain)
		server.Close()
	}()
	if err := server.Serve(l); err != http.ErrServerClosed {
		return fail(err)
	}
	return 0
}

// showPage writes a file into an answer, or the error of reading it.
func showPage(w io.Writer, file string) {
	data, err := os.ReadFile(file)
	if err != nil {
		fmt.Fprintln(w, err)
		return
	}
	w.Write(data) // fails only if the client has gone
}

// wait returns after d, or when ctx ends.
func wait(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}
