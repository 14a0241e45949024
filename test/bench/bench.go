package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"

	"keelson/test/parts"
)

// Config configures a run.
type Config struct {
	Ours     string   // our kubelet's binary, stripped
	Only     []string // figures such as F2, or scenes; empty means all quick scenes
	Runs     int      // samples of figures that are measured with one pod at a time
	Pods     int      // number of pods of a full node
	Upstream bool     // also measure upstream's kubelet
	Profile  string   // folder for CPU profiles and call logs of our kubelet; empty for none
	Parts    *parts.Builder
	Out      io.Writer // progress
	Log      *slog.Logger
}

// scene is one setting in which some figures are measured.
type scene struct {
	name    string
	figures []string
	long    bool // takes minutes: runs only when selected
	play    func(context.Context, *run) error
}

var scenes = []scene{
	{"size", []string{"F15"}, false, playSize},
	{"start", []string{"F1"}, false, playStart},
	{"burst", []string{"F4"}, false, playBurst},
	{"probe", []string{"F13"}, false, playProbe},
	{"many", []string{"F6", "F10"}, false, playMany},
	{"mount", []string{"V1"}, false, playMount},
	{"files", []string{"F14"}, false, playFiles},
	{"tree", []string{"V2"}, true, playTree},
	{"single", []string{"F2", "F5", "F7", "F9"}, false, playSingle},
	{"crowd", []string{"F2"}, false, playCrowd},
	{"restart", []string{"F12"}, false, playRestart},
	{"full", []string{"F3", "F8", "F9"}, true, playFull},
}

// run is the state of a run.
type run struct {
	cfg    Config
	report *Report
	peer   string // upstream's binary
	start  time.Time
	scene  string
}

// contender is a kubelet that is measured.
type contender struct{ who, binary string }

// Run runs the scenes and returns the report. The error is one that prevents the whole run. The report lists the scenes
// that failed.
func Run(ctx context.Context, cfg Config) (*Report, error) {
	r := &run{cfg: cfg, report: NewReport(), start: time.Now()}
	chosen, err := choose(cfg.Only)
	if err != nil {
		return nil, err
	}
	if cfg.Upstream {
		if r.peer, err = cfg.Parts.Path(ctx, "kubelet"); err != nil {
			return nil, err
		}
	}
	for _, c := range r.contenders() {
		if err := fromDisk(c.binary); err != nil {
			return nil, err
		}
	}
	for _, s := range chosen {
		r.scene = s.name
		r.say("%s", strings.Join(s.figures, ", "))
		if err := s.play(ctx, r); err != nil {
			if ctx.Err() != nil {
				return r.report, ctx.Err()
			}
			r.say("failed: %v", err)
			r.report.Failed(s.name, err)
		}
	}
	return r.report, nil
}

// choose returns the scenes that measure one of the figures or have one of the names.
func choose(only []string) ([]scene, error) {
	if len(only) == 0 {
		return slices.DeleteFunc(slices.Clone(scenes), func(s scene) bool { return s.long }), nil
	}
	var out []scene
	used := map[string]bool{}
	for _, s := range scenes {
		in := slices.ContainsFunc(only, func(o string) bool {
			hit := strings.EqualFold(o, s.name) || o == "all" ||
				slices.ContainsFunc(s.figures, func(f string) bool { return strings.EqualFold(f, o) })
			used[o] = used[o] || hit
			return hit
		})
		if in {
			out = append(out, s)
		}
	}
	for _, o := range only {
		if !used[o] {
			return nil, fmt.Errorf("choose scenes: nothing measures %q", o)
		}
	}
	return out, nil
}

// say prints a line of progress.
func (r *run) say(format string, args ...any) {
	fmt.Fprintf(r.cfg.Out, "%4d s  %-8s %s\n", int(time.Since(r.start).Seconds()), r.scene,
		fmt.Sprintf(format, args...))
}

// contenders are the kubelets to be measured, ours first.
func (r *run) contenders() []contender {
	list := []contender{{Ours, r.cfg.Ours}}
	if r.peer != "" {
		list = append(list, contender{Upstream, r.peer})
	}
	return list
}

// within limits the time of a step, so that a kubelet that does not finish fails only the scene and not the run.
func within(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, d, fmt.Errorf("not within %v", d))
}

// pause waits. It is used where no event reports that a process has become idle, and to measure an idle process.
func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

// closing runs a cleanup function, also after the run was canceled.
func closing(err *error, f func(context.Context) error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	*err = errors.Join(*err, f(ctx))
}

func playSize(_ context.Context, r *run) error {
	by := map[string]float64{}
	for _, c := range r.contenders() {
		fi, err := os.Stat(c.binary)
		if err != nil {
			return err
		}
		by[c.who] = float64(fi.Size()) / 1e6
	}
	r.report.Numbers("F15", "kubelet binary", "disk", "MB", by)
	r.report.Hold(binarySize, by[Ours], "")
	return nil
}
