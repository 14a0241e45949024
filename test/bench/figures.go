package bench

import "fmt"

// A Bound is one performance target: the maximum of a value.
type Bound struct {
	Figure string
	What   string
	Limit  float64
	Unit   string // "" for a ratio
}

// The bounds, in the order of the report.
var (
	ownShareP50  = Bound{"F1", "own share of create→Ready, p50, fake runtime", 20, "ms"}
	ownShareP99  = Bound{"F1", "own share of create→Ready, p99, fake runtime", 100, "ms"}
	readyByPeer  = Bound{"F2", "create→Ready one at a time, × upstream", 0.4, ""}
	readyByHand  = Bound{"F2", "create→Ready one at a time, × by hand", 1.2, ""}
	fullP50      = Bound{"F3", "110 at once, p50, × upstream", 0.35, ""}
	fullP99      = Bound{"F3", "110 at once, p99, × upstream", 0.7, ""}
	fullCPU      = Bound{"F3", "110 at once, kubelet CPU a pod, × upstream", 0.33, ""}
	fullDelete   = Bound{"F3", "110 deleted at once, wall, × upstream", 0.6, ""}
	burstP99     = Bound{"F4", "100 at once, p99 less the 130 ms of a sandbox", 250, "ms"}
	goneOver     = Bound{"F5", "delete→gone, p50, over the calls by hand", 150, "ms"}
	exitP99      = Bound{"F6", "exit→status visible, p99, 110 pods", 200, "ms"}
	exitManyP99  = Bound{"F6", "exit→status visible, p99, 1,000 pods", 200, "ms"}
	requests     = Bound{"F7", "API requests a pod, × upstream", 0.5, ""}
	idleCPU      = Bound{"F8", "idle CPU, 110 pods, × upstream", 0.33, ""}
	idleRuntime  = Bound{"F8", "idle CPU of the runtime, × under upstream", 0.33, ""}
	idleSwitches = Bound{"F8", "idle context switches, × upstream", 0.2, ""}
	memoryEmpty  = Bound{"F9", "RSS without pods", 30, "MiB"}
	memoryFull   = Bound{"F9", "RSS at 110 pods", 45, "MiB"}
	idleGrowth   = Bound{"F10", "idle CPU at 1,000 pods / at 100 pods", 2, ""}
	restartReady = Bound{"F12", "restart: exec→node Ready", 1000, "ms"}
	restartEnds  = Bound{"F12", "restart: containers restarted", 0, ""}
	restartFlips = Bound{"F12", "restart: Ready transitions of pods", 0, ""}
	probeReady   = Bound{"F13", "container start→Ready with a probe, p50", 100, "ms"}
	binarySize   = Bound{"F15", "kubelet binary, stripped", 40, "MB"}
)

// A Verdict is a bound with the measured value.
type Verdict struct {
	Bound
	Value float64
	Note  string // why the value is less reliable
}

// Held returns whether the bound is met.
func (v Verdict) Held() bool { return v.Value <= v.Limit }

func (v Verdict) String() string {
	word := "short"
	if v.Held() {
		word = "ok"
	}
	line := fmt.Sprintf("%-3s %s ≤ %s %-5s  %s", v.Figure, amount(v.Value, v.Unit), amount(v.Limit, v.Unit), word,
		v.What)
	if v.Note != "" {
		line += " (" + v.Note + ")"
	}
	return line
}

// amount formats a ratio with two decimals and a quantity with four significant digits and its unit.
func amount(v float64, unit string) string {
	if unit == "" {
		return fmt.Sprintf("%.2f", v)
	}
	return fmt.Sprintf("%.4g %s", v, unit)
}
