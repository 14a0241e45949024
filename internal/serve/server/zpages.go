package server

import (
	"fmt"
	"maps"
	"mime"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"time"

	"sigs.k8s.io/yaml"
)

// About is the content of /statusz and /flagz.
type About struct {
	Started time.Time
	Version string // without the v
	Release string // major and minor version
	// Flags are the command line flags by name, including defaults. Nil disables /flagz (gate ComponentFlagz).
	Flags map[string]string
	// Status enables /statusz (gate ComponentStatusz).
	Status bool
}

// zpage is a z-page in all its formats.
type zpage struct {
	kind string
	text func() string
	// object returns the fields other than kind and version.
	object func() any
}

// zmeta is the metadata of a z-page.
type zmeta struct {
	Kind       string            `json:"kind"`
	APIVersion string            `json:"apiVersion"`
	Metadata   map[string]string `json:"metadata"`
}

func (m *zmeta) set(kind, version string) {
	*m = zmeta{Kind: kind, APIVersion: zGroup + "/" + version, Metadata: map[string]string{"name": componentName}}
}

type settable interface{ set(kind, version string) }

type statuszObject struct {
	zmeta            `json:",inline"`
	StartTime        string   `json:"startTime"`
	UptimeSeconds    int64    `json:"uptimeSeconds"`
	GoVersion        string   `json:"goVersion"`
	BinaryVersion    string   `json:"binaryVersion"`
	EmulationVersion string   `json:"emulationVersion,omitempty"`
	Paths            []string `json:"paths,omitempty"`
}

type flagzObject struct {
	zmeta `json:",inline"`
	Flags map[string]string `json:"flags"`
}

func (s *Server) statusz() http.HandlerFunc {
	a := s.cfg.About
	if !a.Status {
		return nil
	}
	return zpage{
		kind: "Statusz",
		text: func() string {
			up := int64(time.Since(a.Started) / time.Second)
			return fmt.Sprintf(
				"Started:  %s\nUp:  %d hr %02d min %02d sec\nGo version:  %s\nBinary version:  %s\nEmulation "+
					"version:  %s\nPaths:  %s\n",
				a.Started.UTC().Format(time.UnixDate), up/3600, up/60%60, up%60, runtime.Version(), a.Version,
				a.Release, strings.Join(s.paths, " "))
		},
		object: func() any {
			return &statuszObject{
				StartTime:        a.Started.UTC().Format(time.RFC3339),
				UptimeSeconds:    int64(time.Since(a.Started) / time.Second),
				GoVersion:        runtime.Version(),
				BinaryVersion:    a.Version,
				EmulationVersion: a.Release,
				Paths:            s.paths,
			}
		},
	}.serve
}

// listedPaths returns the paths that /statusz lists.
func listedPaths(cfg *Config) []string {
	var out []string
	for _, a := range areas {
		if a.listed && !(a.root == "flagz" && cfg.About.Flags == nil) {
			out = append(out, "/"+a.root)
		}
	}
	slices.Sort(out)
	return out
}

func (s *Server) flagz() http.HandlerFunc {
	flags := s.cfg.About.Flags
	if flags == nil {
		return nil
	}
	return zpage{
		kind: "Flagz",
		text: func() string {
			var b strings.Builder
			for _, name := range slices.Sorted(maps.Keys(flags)) {
				fmt.Fprintf(&b, "%s=%s\n", name, flags[name])
			}
			return b.String()
		},
		object: func() any { return &flagzObject{Flags: flags} },
	}.serve
}

// serve writes the first format that the client accepts: text, or the object if its group, version and kind are
// requested.
func (z zpage) serve(w http.ResponseWriter, r *http.Request) {
	accept := r.Header.Get("Accept")
	if accept == "" {
		accept = "*/*"
	}
	for clause := range strings.SplitSeq(accept, ",") {
		media, params, err := mime.ParseMediaType(strings.TrimSpace(clause))
		if err != nil {
			continue
		}
		switch media {
		case "*/*", "text/*", "text/plain":
			w.Header().Set("Content-Type", "text/plain; charset=utf-8")
			_, _ = fmt.Fprintf(w, "\n%s %s\n%s\n\n%s", componentName, strings.ToLower(z.kind), zWarning, z.text())
			return
		case "application/json", "application/yaml":
			if z.typed(w, media, params) {
				return
			}
		}
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusNotAcceptable)
	_, _ = w.Write([]byte(`{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"only the ` +
		`following media types are accepted: application/json, application/yaml, text/plain","reason":"NotAcceptable",` +
		`"code":406}` + "\n"))
}

// typed writes the object, if the parameters name it.
func (z zpage) typed(w http.ResponseWriter, media string, params map[string]string) bool {
	version := params["v"]
	if params["g"] != zGroup || params["as"] != z.kind || !slices.Contains(zVersions, version) {
		return false
	}
	o := z.object()
	o.(settable).set(z.kind, version)
	b, err := jsonLine(o)
	if err == nil && media == "application/yaml" {
		b, err = yaml.JSONToYAML(b)
	}
	if err != nil {
		writeText(w, http.StatusInternalServerError, "encode answer: "+err.Error())
		return true
	}
	if version != zVersions[0] {
		w.Header().Set("Warning",
			fmt.Sprintf(`299 - "This version of the %s endpoint is deprecated. Please use a newer version."`,
				strings.ToLower(z.kind)))
	}
	w.Header().Set("Content-Type", fmt.Sprintf("%s;g=%s;v=%s;as=%s", media, zGroup, version, z.kind))
	_, _ = w.Write(b)
	return true
}
