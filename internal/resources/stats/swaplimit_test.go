package stats

import (
	"strings"
	"testing"
)

// TestSwapLimits checks that the swap limit of a container is shown if it has one.
func TestSwapLimits(t *testing.T) {
	const series = `container_swap_limit_bytes{container="main",namespace="default",pod="web"} `
	main := podDir + "/" + mainID + "/"
	for name, c := range map[string]struct {
		v2         bool
		file, text string
		want       string // empty: nothing
	}{
		"v2, some": {v2: true, file: "unified" + main + "memory.swap.max", text: "8192", want: "8192 "},
		"v2, none": {v2: true, file: "unified" + main + "memory.swap.max", text: "0", want: "0 "},
		"v2, any":  {v2: true, file: "unified" + main + "memory.swap.max", text: "max"},
		"v1, some": {file: "memory" + main + "memory.memsw.limit_in_bytes", text: "67117056", want: "8192 "},
		"v1, none": {file: "memory" + main + "memory.memsw.limit_in_bytes", text: "67108864", want: "0 "},
		"v1, any":  {file: "memory" + main + "memory.memsw.limit_in_bytes", text: "9223372036854771712"},
	} {
		t.Run(name, func(t *testing.T) {
			g := newGround(t, c.v2)
			g.write(c.file, c.text)
			text := expose(t, New(g.cfg).Resource())
			if c.want == "" {
				if strings.Contains(text, series) {
					t.Errorf("a limit is shown:\n%s", text)
				}
			} else if !strings.Contains(text, series+c.want) {
				t.Errorf("no %q in\n%s", series+c.want, text)
			}
		})
	}
}
