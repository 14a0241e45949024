// Command csidriver serves the test driver as a process of its own, until SIGINT or
// SIGTERM.
package main

import (
	"flag"
	"log"
	"os"
	"os/signal"

	"golang.org/x/sys/unix"

	"keelson/test/kit/csidriver"
)

func main() {
	cfg := csidriver.Config{}
	flag.StringVar(&cfg.Name, "name", "test.csi.keelson.example", "the driver's name")
	flag.StringVar(&cfg.Dir, "dir", "", "where volumes are, and the socket csi.sock")
	flag.StringVar(&cfg.Node, "node", "node", "the driver's name for the node")
	registry := flag.String("registry", "", "registration directory; none: the driver does not register")
	flag.Parse()
	if cfg.Dir == "" {
		log.Fatal("serve driver: -dir is missing")
	}
	d := csidriver.New(cfg)
	if err := d.Start(); err != nil {
		log.Fatalf("serve driver: %v", err)
	}
	if *registry != "" {
		if err := d.Register(*registry); err != nil {
			log.Fatalf("register driver: %v", err)
		}
	}
	end := make(chan os.Signal, 1)
	signal.Notify(end, os.Interrupt, unix.SIGTERM)
	<-end
	d.Stop()
}
