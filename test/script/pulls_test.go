package script

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"keelson/test/kit/fakecri"
	"keelson/test/kit/parity"
)

// TestPullsOfANode creates more pods than fit upstream's queue of serialized pulls, one a second, each with an image of
// its own. The images are pulled in that order, one at a time or as many in parallel as the configuration allows.
func TestPullsOfANode(t *testing.T) {
	parity.Proves(t, "LIFE-98")
	const pods, takes = 13, 20 * time.Second
	for _, tc := range []struct {
		config, flag string
		atATime      int
	}{
		{"", "--serialize-image-pulls=true", 1},
		{"maxParallelImagePulls: 4\n", "", 4},
		{"", "", pods}, // no limit
	} {
		t.Run(fmt.Sprintf("%d at a time", tc.atATime), func(t *testing.T) {
			edit := func(w *World) {
				if tc.flag != "" {
					w.Flags = append(w.Flags, tc.flag)
				}
			}
			Settled(t, tc.config, edit, func(t *testing.T, r *Run) {
				r.Runtime.Inject(fakecri.Fault{Method: "PullImage", Delay: takes})
				begin := time.Now()
				var want []string
				for i := range pods {
					name := fmt.Sprintf("p%02d", i)
					r.Pod(t, name, "spec: {containers: [{name: main, image: '"+name+":1'}]}\n")
					at := time.Duration(i) * time.Second
					if at = max(at,
						time.Duration(i/tc.atATime)*takes+time.Duration(i%tc.atATime)*time.Second); tc.atATime == pods {
						at = time.Duration(i) * time.Second
					}
					want = append(want, fmt.Sprintf("%s:1 %ds", name, int(at.Seconds())))
					time.Sleep(time.Second)
				}
				r.Must(t, "wait", fmt.Sprintf("p%02d", pods-1), "Ready")
				var got []string
				for _, c := range r.Runtime.Calls(0) {
					if c.Method == "PullImage" {
						got = append(got, fmt.Sprintf("%s %ds", c.Image, int(c.Start.Sub(begin).Seconds())))
					}
				}
				if !slices.Equal(got, want) {
					t.Errorf("pulled %q\nwant   %q", got, want)
				}
			})
		})
	}
}
