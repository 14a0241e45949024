package topology

import (
	"testing"

	"keelson/test/kit/parity"
)

func TestOptions(t *testing.T) {
	parity.ProvesPart(t, 3, "RES-41")
	for _, c := range []struct {
		given map[string]string
		want  Options
		err   string
	}{
		{nil, Options{MaxNodes: 8}, ""},
		{map[string]string{"prefer-closest-numa-nodes": "true"}, Options{PreferClosest: true, MaxNodes: 8}, ""},
		{map[string]string{
			"prefer-closest-numa-nodes": "false",
			"max-allowable-numa-nodes":  "8",
		}, Options{MaxNodes: 8}, ""},
		{map[string]string{"max-allowable-numa-nodes": "9"}, Options{MaxNodes: 9}, ""},
		{map[string]string{"max-allowable-numa-nodes": "7"}, Options{},
			`the minimum value of "max-allowable-numa-nodes" should not be less than 8`},
		{map[string]string{"max-allowable-numa-nodes": "many"}, Options{},
			`unable to convert policy option to integer "max-allowable-numa-nodes": ` +
				`strconv.Atoi: parsing "many": invalid syntax`},
		{map[string]string{"prefer-closest-numa-nodes": "maybe"}, Options{},
			`bad value for option "prefer-closest-numa-nodes": strconv.ParseBool: parsing "maybe": invalid syntax`},
		{map[string]string{"fast": "true"}, Options{}, `unknown Topology Manager Policy option: "fast"`},
	} {
		got, err := ParseOptions(c.given)
		problem := ""
		if err != nil {
			got, problem = Options{}, err.Error()
		}
		if got != c.want || problem != c.err {
			t.Errorf("%v: %+v, %q; want %+v, %q", c.given, got, problem, c.want, c.err)
		}
	}
}
