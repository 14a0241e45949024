package server_test

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"keelson/internal/serve/server"
	"keelson/test/kit/parity"
)

func TestStatuszAndFlagz(t *testing.T) {
	parity.Proves(t, "SRV-30")
	r := newRig(t, func(p *parts) {
		p.server.About = server.About{
			Started: time.Now().Add(-3725 * time.Second),
			Version: "1.36.3",
			Release: "1.36",
			Status:  true,
			Flags:   map[string]string{"v": "2", "address": "0.0.0.0"},
		}
	})
	ask := func(path, accept string) answer {
		t.Helper()
		header := []string{"Authorization", "Bearer token-admin"}
		if accept != "" {
			header = append(header, "Accept", accept)
		}
		return r.ask(r.client(), "GET", "https://"+r.addr[server.Secure]+path, header...)
	}
	const warning = "Warning: This endpoint is not meant to be machine parseable, has no formatting compatibility " +
		"guarantees and is for debugging purposes only.\n"
	const typed = ";g=config.k8s.io;v=v1beta1;as="
	for _, c := range []struct {
		path, accept string
		code         int
		kind, text   string // text is a pattern
	}{
		{"/statusz", "", 200, "text/plain; charset=utf-8", "\nkubelet statusz\n" + warning +
			"\nStarted:  .* UTC \\d+\nUp:  1 hr 02 min 05 sec\nGo version:  go.*\nBinary version:  1.36.3\nEmulation " +
			"version:  1.36\nPaths:  /configz /debug /flagz /healthz /metrics\n"},
		{"/statusz", "*/*", 200, "text/plain; charset=utf-8", "(?s)\nkubelet statusz\n.*"},
		{"/flagz", "text/plain", 200, "text/plain; charset=utf-8",
			"\nkubelet flagz\n" + warning + "\naddress=0.0.0.0\nv=2\n"},
		{"/flagz", "application/json" + typed + "Flagz", 200, "application/json" + typed + "Flagz",
			`{"kind":"Flagz","apiVersion":"config.k8s.io/v1beta1","metadata":{"name":"kubelet"},"flags":{"address":"0.0.0.0",` +
				`"v":"2"}}` + "\n"},
		{"/flagz", "application/yaml" + typed + "Flagz", 200, "application/yaml" + typed + "Flagz",
			"apiVersion: config.k8s.io/v1beta1\nflags:\n  address: 0.0.0.0\n  v: \"2\"\nkind: Flagz\nmetadata:\n  name: " +
				"kubelet\n"},
		{"/statusz", "application/json" + typed + "Statusz,text/plain", 200, "application/json" + typed + "Statusz",
			`{"kind":"Statusz","apiVersion":"config.k8s.io/v1beta1","metadata":{"name":"kubelet"},"startTime":".*Z",` +
				`"uptimeSeconds":3725,"goVersion":"go.*","binaryVersion":"1.36.3","emulationVersion":"1.36",` +
				`"paths":\["/configz","/debug","/flagz","/healthz","/metrics"\]}` + "\n"},
		{"/flagz", "application/json" + typed + "Statusz,text/plain", 200,
			"text/plain; charset=utf-8", "(?s)\nkubelet flagz.*"},
		{"/statusz", "application/json", 406, "application/json",
			`.*"only the following media types are accepted: application/json, application/yaml, text/plain",` +
				`"reason":"NotAcceptable","code":406}` + "\n"},
		{"/statusz", "text/html", 406, "application/json", "(?s).*NotAcceptable.*"},
		{"/statusz", "application/cbor" + typed + "Statusz", 406, "application/json", "(?s).*NotAcceptable.*"},
	} {
		got := ask(c.path, c.accept)
		if got.code != c.code || got.header.Get("Content-Type") != c.kind ||
			!regexp.MustCompile("^"+c.text+"$").MatchString(got.text) {
			t.Errorf("%s for %q: %d %s\n%s", c.path, c.accept, got.code, got.header.Get("Content-Type"), got.text)
		}
	}
	old := ask("/statusz", "application/json;v=v1alpha1;g=config.k8s.io;as=Statusz")
	if old.code != 200 || !strings.Contains(old.text, "config.k8s.io/v1alpha1") ||
		old.header.Get("Warning") != `299 - "This version of the statusz endpoint is deprecated. Please use a newer `+
			`version."` {
		t.Errorf("an old version: %d %v %s", old.code, old.header, old.text)
	}
	off := newRig(t, func(p *parts) { p.server.About = server.About{} })
	for _, path := range []string{"/statusz", "/flagz"} {
		if got := off.as("admin", "GET", path); got.code != 404 {
			t.Errorf("%s switched off: %d", path, got.code)
		}
	}
}
