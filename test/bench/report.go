package bench

import (
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// The contenders.
const (
	Ours     = "ours"
	Upstream = "upstream"
	Hand     = "by hand"
)

// Row is one quantity with the results of all contenders.
type Row struct {
	Figure string
	What   string
	On     string // what it was measured on: "fake runtime, fake API"
	Cells  map[string]string
	// Base are the numbers for ratios by contender; zero means none.
	Base map[string]float64
}

// Report collects the results of a run.
type Report struct {
	start    time.Time
	load     string
	rows     []Row
	verdicts []Verdict
	failed   []string
}

// NewReport returns an empty report.
func NewReport() *Report { return &Report{start: time.Now(), load: loadAverage()} }

// Times adds a row of durations.
func (r *Report) Times(figure, what, on string, by map[string]Samples) {
	row := Row{Figure: figure, What: what, On: on, Cells: map[string]string{}, Base: map[string]float64{}}
	for who, s := range by {
		if len(s) == 0 {
			continue
		}
		row.Cells[who] = fmt.Sprintf("%.1f / %.1f (%d)", ms(s.Median()), ms(s.P(0.99)), len(s))
		row.Base[who] = ms(s.Median())
	}
	r.rows = append(r.rows, row)
}

// Numbers adds a row of single numbers.
func (r *Report) Numbers(figure, what, on, unit string, by map[string]float64) {
	row := Row{Figure: figure, What: what, On: on, Cells: map[string]string{}, Base: by}
	for who, v := range by {
		row.Cells[who] = fmt.Sprintf("%.4g %s", v, unit)
	}
	r.rows = append(r.rows, row)
}

// Hold adds a verdict: the value is compared with the bound.
func (r *Report) Hold(b Bound, value float64, note string) {
	r.verdicts = append(r.verdicts, Verdict{Bound: b, Value: value, Note: note})
}

// Failed records a scene that failed.
func (r *Report) Failed(scene string, err error) {
	r.failed = append(r.failed, fmt.Sprintf("%s: %v", scene, err))
}

// Print writes the table and a line for each verdict.
func (r *Report) Print(w io.Writer) error {
	fmt.Fprintf(w, "\nLoad average %s at the start, %s now; %d s. Times in ms: p50 / p99 (samples).\n\n", r.load,
		loadAverage(), int(time.Since(r.start).Seconds()))
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "FIG\tWHAT\tON\tOURS\tUPSTREAM\tBY HAND\tOURS/UPSTREAM\tOURS/HAND")
	for _, row := range r.rows {
		cell := func(who string) string {
			if c := row.Cells[who]; c != "" {
				return c
			}
			return "-"
		}
		against := func(who string) string {
			q := ratio(row.Base[Ours], row.Base[who])
			if math.IsInf(q, 0) {
				return "-"
			}
			return fmt.Sprintf("%.2f", q)
		}
		fmt.Fprintln(t,
			strings.Join([]string{row.Figure, row.What, row.On, cell(Ours), cell(Upstream), cell(Hand),
				against(Upstream), against(Hand)}, "\t"))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(w)
	verdicts := slices.Clone(r.verdicts)
	slices.SortStableFunc(verdicts, func(a, b Verdict) int { return figureNumber(a.Figure) - figureNumber(b.Figure) })
	for _, v := range verdicts {
		if _, err := fmt.Fprintln(w, v); err != nil {
			return err
		}
	}
	for _, f := range r.failed {
		fmt.Fprintln(w, "not measured:", f)
	}
	return nil
}

// Complete returns whether no scene failed.
func (r *Report) Complete() bool { return len(r.failed) == 0 }

func figureNumber(id string) int {
	var n int
	if _, err := fmt.Sscanf(id, "F%d", &n); err != nil {
		return math.MaxInt
	}
	return n
}

func loadAverage() string {
	data, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	return strings.Join(strings.Fields(string(data))[:3], " ")
}
