// Command fakecri serves the fake container runtime on a unix socket, for use with any kubelet binary. On SIGINT or
// SIGTERM it prints which calls it got, how many at once and how long they took, and ends.
package main

import (
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"keelson/test/kit/fakecri"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "fakecri:", err)
		os.Exit(1)
	}
}

func run() error {
	var opts fakecri.Options
	var faults []fakecri.Fault
	listen := flag.String("listen", "unix:///tmp/fakecri.sock", "socket to serve on")
	flag.StringVar(&opts.PodCIDR, "pod-cidr", "", "range of pod addresses (default 10.88.0.0/16)")
	flag.BoolVar(&opts.Systemd, "systemd", false, "report the systemd cgroup driver")
	flag.BoolVar(&opts.Old, "old", false, "be like containerd 1.6")
	flag.BoolVar(&opts.NoEvents, "no-events", false, "have no event stream")
	flag.BoolVar(&opts.NoRuntimeConfig, "no-runtime-config", false, "have no RuntimeConfig call")
	flag.Func("handler", "name of a runtime handler besides the default one (repeatable)", func(s string) error {
		opts.Handlers = append(opts.Handlers, s)
		return nil
	})
	flag.Func("latency", "METHOD=DURATION: how long a call takes (repeatable)", func(s string) error {
		method, text, ok := strings.Cut(s, "=")
		if !ok {
			return fmt.Errorf("want METHOD=DURATION")
		}
		d, err := time.ParseDuration(text)
		faults = append(faults, fakecri.Fault{Method: method, Delay: d})
		return err
	})
	flag.Parse()

	r := fakecri.New(opts)
	for _, f := range faults {
		r.Inject(f)
	}
	if err := r.Listen(*listen); err != nil {
		return err
	}
	fmt.Println("serving on", *listen)
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGINT, syscall.SIGTERM)
	<-stop
	r.Close()
	return summary(r)
}

func summary(r *fakecri.Runtime) error {
	usage := r.Usage()
	var names []string
	for name := range usage {
		names = append(names, name)
	}
	slices.Sort(names)
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "METHOD\tCALLS\tERRORS\tAT ONCE\tTOTAL\tLONGEST")
	for _, name := range names {
		u := usage[name]
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%v\t%v\n", name, u.Calls, u.Errors, u.MaxOpen, u.Total.Round(time.Microsecond),
			u.Max.Round(time.Microsecond))
	}
	return w.Flush()
}
