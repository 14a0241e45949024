package config

import (
	"strings"
	"testing"
	"time"
)

// TestOwnFields: own fields are read from the configuration file and drop-ins, without a warning. Invalid values are
// rejected.
func TestOwnFields(t *testing.T) {
	const field = "keelson.dev/devicePluginRegistrationTimeout"
	dir := write(t, map[string]string{
		"none.yaml":    head + standaloneOK,
		"k.yaml":       head + standaloneOK + field + ": 90s\n",
		"d/a.conf":     head + field + ": 0s\n",
		"typo.yaml":    head + standaloneOK + "keelson.dev/devicePlugin: 90s\n",
		"minus.yaml":   head + standaloneOK + field + ": -1s\n",
		"number.yaml":  head + standaloneOK + field + ": 300\n",
		"nothing.yaml": head + standaloneOK + field + ":\n",
	})
	for _, tc := range []struct {
		args []string
		want time.Duration
	}{
		{[]string{"--config=" + dir + "/none.yaml"}, 5 * time.Minute},
		{[]string{"--config=" + dir + "/nothing.yaml"}, 5 * time.Minute},
		{[]string{"--config=" + dir + "/k.yaml"}, 90 * time.Second},
		{[]string{"--config=" + dir + "/k.yaml", "--config-dir=" + dir + "/d"}, 0},
	} {
		c := load(t, tc.args...)
		if c.Own.DevicePluginRegistrationTimeout != tc.want || len(c.Warnings) > 0 {
			t.Errorf("%q: %v, want %v; warnings %q", tc.args, c.Own.DevicePluginRegistrationTimeout, tc.want,
				c.Warnings)
		}
	}
	c := load(t, "--config="+dir+"/k.yaml")
	if text := c.Show(); !strings.Contains(text, field+`: "1m30s"`) || !strings.Contains(text, "# "+dir+"/k.yaml") {
		t.Errorf("shown as\n%s", text)
	}
	if c := load(t, "--config="+dir+"/typo.yaml"); len(c.Warnings) != 1 ||
		!strings.Contains(c.Warnings[0], `unknown field "keelson.dev/devicePlugin"`) {
		t.Errorf("a field that does not exist: %q", c.Warnings)
	}
	for file, want := range map[string]string{
		"minus.yaml":  dir + "/minus.yaml: " + field + `: "-1s" must not be negative`,
		"number.yaml": dir + "/number.yaml: " + field + ": 300 must be a duration such as 5m",
	} {
		if _, err := Load([]string{"--config=" + dir + "/" + file}); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", file, err, want)
		}
	}
}
