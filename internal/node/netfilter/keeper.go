package netfilter

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os/exec"
	"time"
)

const (
	// lookAgain is how long chains that somebody took away stay away.
	lookAgain = time.Minute
	// patience is how long one call may take. Others may hold the tables' lock.
	patience = 10 * time.Second
	// statusMissing is what the programs end with if there is nothing of the kind, and
	// 2 to 4 if they could not look.
	statusMissing = 1
)

// Config holds what a Keeper is built from. Every field is required.
type Config struct {
	// Exec runs iptables or ip6tables.
	Exec func(ctx context.Context, program string, args ...string) error
	Log  *slog.Logger
}

// Keeper keeps the chains.
type Keeper struct {
	cfg  Config
	said map[string]string // by program, what was last complained of
}

// New builds a Keeper; nothing is touched before Run.
func New(cfg Config) *Keeper { return &Keeper{cfg: cfg, said: map[string]string{}} }

// Run keeps the chains until ctx ends. A node on which that cannot be done runs
// without them.
func (k *Keeper) Run(ctx context.Context) error {
	tick := time.NewTicker(lookAgain)
	defer tick.Stop()
	for {
		k.ensure(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// A piece is something in a table: how it is seen to be there, and how it is made.
type piece struct {
	table       string
	check, make []string
}

func chain(table, name string) piece {
	return piece{table, []string{"-S", name}, []string{"-N", name}}
}

// rule is put at the end of its chain by -A, and before everything else by -I.
func rule(table, how, name string, match ...string) piece {
	return piece{table, append([]string{"-C", name}, match...), append([]string{how, name}, match...)}
}

var pieces = map[string][]piece{
	"iptables": {
		chain("mangle", chainHint),
		chain("filter", chainFirewall),
		// With route_localnet on, which port mappings want, the kernel would take
		// packets from neighbours for local ones (CVE-2020-8558).
		rule("filter", "-A", chainFirewall, "!", "-s", "127.0.0.0/8", "-d", "127.0.0.0/8",
			"-m", "comment", "--comment", "block incoming localnet connections",
			"-m", "conntrack", "!", "--ctstate", "RELATED,ESTABLISHED,DNAT", "-j", "DROP"),
		rule("filter", "-I", "INPUT", "-j", chainFirewall),
		rule("filter", "-I", "OUTPUT", "-j", chainFirewall),
	},
	"ip6tables": {chain("mangle", chainHint)},
}

// ensure makes what is not there. Each complaint is made once.
func (k *Keeper) ensure(ctx context.Context) {
	for program, list := range pieces {
		err := k.ensureAll(ctx, program, list)
		if ctx.Err() != nil {
			return
		}
		said := ""
		if err != nil {
			said = err.Error()
		}
		if said != "" && said != k.said[program] {
			k.cfg.Log.Warn("cannot keep the chains of the packet filter", "program", program, "err", err)
		}
		k.said[program] = said
	}
}

func (k *Keeper) ensureAll(ctx context.Context, program string, list []piece) error {
	for _, p := range list {
		err := k.call(ctx, program, p.table, p.check)
		if isMissing(err) {
			err = k.call(ctx, program, p.table, p.make)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// isMissing reports whether a look says that a chain or rule is not there. A look that
// failed, because others held the tables' lock for too long, says nothing: a rule that
// is there would be made once more each time.
func isMissing(err error) bool {
	var exit interface{ ExitCode() int }
	return errors.As(err, &exit) && exit.ExitCode() == statusMissing
}

func (k *Keeper) call(ctx context.Context, program, table string, args []string) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return k.cfg.Exec(ctx, program, append([]string{"-w", "5", "-t", table}, args...)...)
}

// Exec runs a program of this machine.
func Exec(ctx context.Context, program string, args ...string) error {
	cmd := exec.CommandContext(ctx, program, args...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.WaitDelay = time.Second
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("run %s: %w: %s", cmd, err, bytes.TrimSpace(out.Bytes()))
	}
	return nil
}
