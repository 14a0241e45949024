package config

import (
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	v1beta1 "k8s.io/kubelet/config/v1beta1"
)

// Show returns the effective configuration as a configuration file, each value with its
// origin as a comment. Credentials are masked. The settings that exist only as flags
// precede it as comments.
func (c *Config) Show() string {
	var b strings.Builder
	b.WriteString("# The effective configuration of the kubelet, with the origin of each value.\n")
	fmt.Fprintf(&b, "# node name: %s\n", c.NodeName)
	var rows [][2]string
	for _, name := range slices.Sorted(maps.Keys(c.native)) {
		rows = append(rows, [2]string{"# --" + name + "=" + c.native[name], ""})
	}
	rows = append(rows, [2]string{"apiVersion: " + APIVersion, ""}, [2]string{"kind: " + Kind, ""})
	doc := document(c.Masked())
	maps.Copy(doc, c.Own.document())
	// An empty map differs from a missing one, which has defaults.
	if len(c.Kubelet.EvictionHard) == 0 {
		doc["evictionHard"] = map[string]any{}
	}
	if len(c.Kubelet.EnforceNodeAllocatable) == 0 {
		doc["enforceNodeAllocatable"] = []any{}
	}
	delete(doc, "apiVersion")
	delete(doc, "kind")
	rows = append(rows, c.rows(doc, "", "")...)
	width := 0
	for _, r := range rows {
		if r[1] != "" && len(r[0]) <= 60 {
			width = max(width, len(r[0]))
		}
	}
	for _, r := range rows {
		if r[1] == "" {
			b.WriteString(r[0] + "\n")
			continue
		}
		fmt.Fprintf(&b, "%-*s  # %s\n", width, r[0], r[1])
	}
	return b.String()
}

// rows returns the lines of a part of the document with their origins.
func (c *Config) rows(doc map[string]any, prefix, indent string) [][2]string {
	var out [][2]string
	for _, name := range slices.Sorted(maps.Keys(doc)) {
		// Keys of maps may need quotes; names of fields do not.
		at, key := prefix+name, name
		if strings.ContainsAny(name, ":# {}[]'\"") {
			key = quoted(name)
		}
		if child, ok := doc[name].(map[string]any); ok && len(child) > 0 {
			out = append(out, [2]string{indent + key + ":", ""})
			out = append(out, c.rows(child, at+".", indent+"  ")...)
			continue
		}
		from := c.Origins.Of(at)
		if from == "" {
			from = "default"
		}
		out = append(out, [2]string{indent + key + ": " + quoted(doc[name]), from})
	}
	return out
}

// quoted returns a value in one line of JSON, which is valid YAML.
func quoted(v any) string {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return fmt.Sprintf("%q", fmt.Sprint(v))
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// Change is a field whose value differs between two configurations.
type Change struct {
	Field    string
	Old, New string // as JSON; "null" where there is none
}

// Changes lists the fields that differ between two configurations. It is for the log:
// credentials are masked.
func Changes(old, now *v1beta1.KubeletConfiguration) []Change {
	var out []Change
	a, b := flat(document(old), "", map[string]string{}), flat(document(now), "", map[string]string{})
	fields := maps.Clone(a)
	maps.Copy(fields, b)
	for _, field := range slices.Sorted(maps.Keys(fields)) {
		was, is := orNull(a[field]), orNull(b[field])
		if was == is {
			continue
		}
		if isSecret(field) {
			was, is = hidden(was), hidden(is)
		}
		out = append(out, Change{Field: field, Old: was, New: is})
	}
	return out
}

// isSecret reports whether values of the field may be credentials.
func isSecret(field string) bool {
	return field == secretField || strings.HasPrefix(field, secretField+".")
}

// hidden returns the mask of a credential, as JSON.
func hidden(value string) string {
	if value == "null" {
		return value
	}
	return quoted(masked)
}

func orNull(s string) string {
	if s == "" {
		return "null"
	}
	return s
}

func flat(doc map[string]any, prefix string, into map[string]string) map[string]string {
	for k, v := range doc {
		if child, ok := v.(map[string]any); ok && len(child) > 0 {
			flat(child, prefix+k+".", into)
			continue
		}
		into[prefix+k] = quoted(v)
	}
	return into
}

// Configz returns the configuration k for /configz, with the values that upstream's agent
// sets at its start: the files of the self-signed certificate, the number of
// reservedSystemCPUs as the CPU reservation, and the cgroup driver that the runtime
// reports.
func (c *Config) Configz(k *v1beta1.KubeletConfiguration, cgroupDriver string) *v1beta1.KubeletConfiguration {
	k = k.DeepCopy()
	k.CgroupDriver = cgroupDriver
	if !k.ServerTLSBootstrap && k.TLSCertFile == "" && k.TLSPrivateKeyFile == "" {
		k.TLSCertFile = filepath.Join(c.Flags.CertDir, "kubelet.crt")
		k.TLSPrivateKeyFile = filepath.Join(c.Flags.CertDir, "kubelet.key")
	}
	if n := CountCPUs(k.ReservedSystemCPUs); n > 0 {
		delete(k.KubeReserved, "cpu")
		if k.SystemReserved != nil {
			k.SystemReserved["cpu"] = strconv.Itoa(n)
		}
	}
	return k
}
