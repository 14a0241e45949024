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
	// checkPeriod is the interval between checks.
	checkPeriod = time.Minute
	// callTimeout is the timeout of a call, which may have to wait for the xtables lock.
	callTimeout = 10 * time.Second
	// statusMissing is the exit status of iptables if the chain or rule does not exist. Errors are 2 to 4.
	statusMissing = 1
)

// Config holds the configuration of a Keeper. All fields are required.
type Config struct {
	// Exec runs iptables or ip6tables.
	Exec func(ctx context.Context, program string, args ...string) error
	Log  *slog.Logger
}

// Keeper ensures the chains.
type Keeper struct {
	cfg       Config
	lastError map[string]string // last logged error by program
}

// New returns a Keeper. It does nothing before Run.
func New(cfg Config) *Keeper { return &Keeper{cfg: cfg, lastError: map[string]string{}} }

// Run ensures the chains periodically until ctx ends. Failures are logged, and the node runs without the chains.
func (k *Keeper) Run(ctx context.Context) error {
	tick := time.NewTicker(checkPeriod)
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

// piece is a chain or rule, with the arguments that check and create it.
type piece struct {
	table       string
	check, make []string
}

func chain(table, name string) piece {
	return piece{table, []string{"-S", name}, []string{"-N", name}}
}

// rule is a rule that is appended to its chain (-A) or inserted at its beginning (-I).
func rule(table, how, name string, match ...string) piece {
	return piece{table, append([]string{"-C", name}, match...), append([]string{how, name}, match...)}
}

var pieces = map[string][]piece{
	"iptables": {
		chain("mangle", chainHint),
		chain("filter", chainFirewall),
		// With route_localnet, which port mappings need, the kernel would accept packets to loopback addresses from
		// neighbours (CVE-2020-8558).
		rule("filter", "-A", chainFirewall, "!", "-s", "127.0.0.0/8", "-d", "127.0.0.0/8",
			"-m", "comment", "--comment", "block incoming localnet connections",
			"-m", "conntrack", "!", "--ctstate", "RELATED,ESTABLISHED,DNAT", "-j", "DROP"),
		rule("filter", "-I", "INPUT", "-j", chainFirewall),
		rule("filter", "-I", "OUTPUT", "-j", chainFirewall),
	},
	"ip6tables": {chain("mangle", chainHint)},
}

// ensure creates missing chains and rules. Each error is logged once.
func (k *Keeper) ensure(ctx context.Context) {
	for program, list := range pieces {
		err := k.ensureAll(ctx, program, list)
		if ctx.Err() != nil {
			return
		}
		logged := ""
		if err != nil {
			logged = err.Error()
		}
		if logged != "" && logged != k.lastError[program] {
			k.cfg.Log.Warn("failed to ensure iptables chains", "program", program, "err", err)
		}
		k.lastError[program] = logged
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

// isMissing reports whether a check found that a chain or rule does not exist. If the check failed, for example because
// of the xtables lock, nothing is created, because rules would be duplicated.
func isMissing(err error) bool {
	var exit interface{ ExitCode() int }
	return errors.As(err, &exit) && exit.ExitCode() == statusMissing
}

func (k *Keeper) call(ctx context.Context, program, table string, args []string) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return k.cfg.Exec(ctx, program, append([]string{"-w", "5", "-t", table}, args...)...)
}

// Exec runs a program.
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
