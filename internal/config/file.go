package config

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	v1beta1 "k8s.io/kubelet/config/v1beta1"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

// loadFiles reads the configuration file and the drop-ins, and merges them over the
// defaults. Without a configuration file the drop-ins are merged over the defaults and
// flags.
func (c *Config) loadFiles() error {
	merged := map[string]any{}
	flags := maps.Clone(c.Kubelet.FeatureGates)
	var err error
	if path := c.Flags.ConfigFile; path != "" {
		merged, err = c.readFile("--config", path)
		if err != nil {
			return err
		}
		fillEvictionHard(merged)
		if err := besideFile(merged, path); err != nil {
			return err
		}
	} else {
		b, err := json.Marshal(c.Kubelet)
		if err != nil {
			return fmt.Errorf("encode the configuration made by flags: %w", err)
		}
		if err := kjson.UnmarshalCaseSensitivePreserveInts(b, &merged); err != nil {
			return fmt.Errorf("decode the configuration made by flags: %w", err)
		}
	}
	paths, err := dropIns(c.Flags.ConfigDir)
	if err != nil {
		return err
	}
	// Drop-ins are merged over the file with its defaults: a default that depends on another
	// field does not follow that field's value in a drop-in.
	if c.Flags.ConfigFile != "" && c.Flags.ConfigDir != "" {
		if merged, err = withDefaults(merged, flags); err != nil {
			return err
		}
	}
	for _, path := range paths {
		doc, err := c.readFile("--config-dir", path)
		if err != nil {
			return err
		}
		mergePatch(merged, doc)
	}
	b, err := json.Marshal(merged)
	if err != nil {
		return fmt.Errorf("encode the merged configuration: %w", err)
	}
	var k v1beta1.KubeletConfiguration
	if err := kjson.UnmarshalCaseSensitivePreserveInts(b, &k); err != nil {
		return fmt.Errorf("decode the merged configuration: %w", err)
	}
	if c.Flags.ConfigFile != "" && c.Flags.ConfigDir == "" {
		roundReserved(&k)
	}
	// encoding/json keeps an empty map, which matters for evictionHard: {} means no
	// thresholds.
	setDefaults(&k, flags)
	c.Kubelet = k
	c.mismatches = append(c.mismatches, c.Own.set(merged)...)
	return nil
}

// fillEvictionHard adds default thresholds to the configuration file: all of them if it sets none, the missing ones if
// mergeDefaultEvictionSettings is set. Thresholds of drop-ins and flags are applied afterwards.
func fillEvictionHard(doc map[string]any) {
	hard, named := doc["evictionHard"].(map[string]any)
	if doc["evictionHard"] == nil {
		doc["evictionHard"] = toAny(defaultEvictionHard())
	}
	if !named || doc["mergeDefaultEvictionSettings"] != true {
		return
	}
	for signal, least := range defaultEvictionHard() {
		if _, there := hard[signal]; !there {
			hard[signal] = least
		}
	}
}

// roundReserved rounds quantities of the configuration file up to thousandths, as the API
// does. Those of drop-ins and flags are not changed.
func roundReserved(k *v1beta1.KubeletConfiguration) {
	for _, m := range k.ReservedMemory {
		for kind, q := range m.Limits {
			q.RoundUp(resource.Milli)
			m.Limits[kind] = q
		}
	}
}

// withDefaults sets the defaults in the document of the configuration file.
func withDefaults(doc map[string]any, flags map[string]bool) (map[string]any, error) {
	b, err := json.Marshal(doc)
	if err != nil {
		return nil, fmt.Errorf("encode the configuration file: %w", err)
	}
	var k v1beta1.KubeletConfiguration
	if err := kjson.UnmarshalCaseSensitivePreserveInts(b, &k); err != nil {
		return nil, fmt.Errorf("decode the configuration file: %w", err)
	}
	roundReserved(&k)
	setDefaults(&k, flags)
	if b, err = json.Marshal(k); err != nil {
		return nil, fmt.Errorf("encode the configuration file: %w", err)
	}
	out := map[string]any{}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(b, &out); err != nil {
		return nil, fmt.Errorf("decode the configuration file: %w", err)
	}
	if own, there := doc[fieldPluginTimeout]; there {
		out[fieldPluginTimeout] = own
	}
	return out, nil
}

// paths are the fields that name files or directories.
var paths = [][]string{
	{"staticPodPath"},
	{"authentication", "x509", "clientCAFile"},
	{"tlsCertFile"},
	{"tlsPrivateKeyFile"},
	{"resolvConf"},
	{"volumePluginDir"},
	{"podLogsDir"},
}

// besideFile resolves relative paths in the configuration file against its directory.
// Those of drop-ins and flags are not changed.
func besideFile(doc map[string]any, file string) error {
	whole, err := filepath.Abs(file)
	if err != nil {
		return fmt.Errorf("--config: find configuration file: %w", err)
	}
	for _, field := range paths {
		in, name := doc, field[len(field)-1]
		for _, outer := range field[:len(field)-1] {
			in, _ = in[outer].(map[string]any) // nil has no fields
		}
		if path, ok := in[name].(string); ok && path != "" && !filepath.IsAbs(path) {
			in[name] = filepath.Join(filepath.Dir(whole), path)
		}
	}
	return nil
}

// readFile reads one file, checks that it is a KubeletConfiguration, and records the
// origin of its fields. Unknown fields are a warning: a file may be shared with newer
// agents. flag is the one that names the file or its directory.
func (c *Config) readFile(flag, path string) (map[string]any, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("%s: read configuration file: %w", flag, err)
	}
	doc, unknown, err := decode(text)
	var ps Problems
	if errors.As(err, &ps) {
		for i := range ps {
			ps[i].Origin = path
		}
		if doc == nil {
			return nil, ps
		}
		c.mismatches = append(c.mismatches, ps...)
	} else if err != nil {
		return nil, fmt.Errorf("invalid configuration: %s: %w", path, err)
	}
	if len(unknown) > 0 {
		c.Warnings = append(c.Warnings,
			fmt.Sprintf("Using lenient decoding as strict decoding failed: %s: %s", path, strings.Join(unknown, ", ")))
	}
	c.Origins.note(doc, "", path)
	delete(c.Origins, "apiVersion")
	delete(c.Origins, "kind")
	return doc, nil
}

// decode decodes one YAML or JSON document. If values of some fields have a wrong type, it
// returns Problems and the document without them. unknown are the errors of strict
// decoding: unknown and duplicate fields.
func decode(text []byte) (doc map[string]any, unknown []string, err error) {
	asJSON, err := yaml.YAMLToJSONStrict(text)
	if err != nil {
		lenient, lerr := yaml.YAMLToJSON(text)
		if lerr != nil {
			return nil, nil, lerr
		}
		unknown = append(unknown, firstLine(err))
		asJSON = lenient
	}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(asJSON, &doc); err != nil {
		return nil, nil, fmt.Errorf("the document is not a map of fields: %w", err)
	}
	if ps := checkKind(doc); len(ps) > 0 {
		return nil, nil, ps
	}
	more, err := documents(text)
	if err != nil {
		return nil, nil, err
	}
	if more > 1 {
		unknown = append(unknown, fmt.Sprintf("only the first of its %d documents counts", more))
	}
	var k v1beta1.KubeletConfiguration
	strict, err := kjson.UnmarshalStrict(asJSON, &k)
	var mismatches Problems
	if err != nil {
		// The rest of the document is still validated.
		mismatches = cutMismatches(doc, "", func(m map[string]any) map[string]any { return m })
		rest, err := json.Marshal(doc)
		if err != nil {
			return nil, nil, fmt.Errorf("encode what fits: %w", err)
		}
		if strict, err = kjson.UnmarshalStrict(rest, &v1beta1.KubeletConfiguration{}); err != nil {
			return nil, nil, fmt.Errorf("decode what fits: %w", err)
		}
	}
	for _, e := range strict {
		if !isOwn(e.Error()) {
			unknown = append(unknown, e.Error())
		}
	}
	if len(mismatches) > 0 {
		return doc, unknown, mismatches
	}
	return doc, unknown, nil
}

// documents counts the documents of a file that are not empty.
func documents(text []byte) (n int, err error) {
	for r := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text))); ; {
		doc, err := r.Read()
		if errors.Is(err, io.EOF) {
			return n, nil
		}
		if err != nil {
			return 0, err
		}
		var content any
		if yaml.Unmarshal(doc, &content) != nil || content != nil {
			n++ // also one that cannot be decoded
		}
	}
}

// checkKind reads the apiVersion and kind of a document. Unlike those of all other
// fields, the case of the two names does not matter.
func checkKind(doc map[string]any) Problems {
	var ps Problems
	for _, want := range []struct{ field, value string }{{"apiVersion", APIVersion}, {"kind", Kind}} {
		value := doc[want.field]
		for _, name := range slices.Sorted(maps.Keys(doc)) {
			if value == nil && strings.EqualFold(name, want.field) {
				value = doc[name]
			}
		}
		if value != want.value {
			ps = append(ps, Problem{Field: want.field, Value: value, Why: "must be " + want.value})
		}
	}
	return ps
}

// cutMismatches finds every field whose value has a wrong type, by decoding each alone,
// and removes it from the document. wrap embeds a part into a document at its place.
func cutMismatches(doc map[string]any, prefix string, wrap func(map[string]any) map[string]any) Problems {
	var ps Problems
	for _, k := range slices.Sorted(maps.Keys(doc)) {
		alone := func(m map[string]any) map[string]any { return wrap(map[string]any{k: m}) }
		why := fit(wrap(map[string]any{k: doc[k]}))
		if why == "" {
			continue
		}
		if child, ok := doc[k].(map[string]any); ok && fit(alone(map[string]any{})) == "" {
			if inner := cutMismatches(child, prefix+k+".", alone); len(inner) > 0 {
				ps = append(ps, inner...)
				continue
			}
		}
		problem := Problem{Field: prefix + k, Value: shown(doc[k]), Why: why}
		if isSecret(problem.Field) {
			problem.Value = masked
		}
		ps = append(ps, problem)
		delete(doc, k)
	}
	return ps
}

// fit returns why a document does not decode; "" if it does.
func fit(doc map[string]any) string {
	b, err := json.Marshal(doc)
	if err != nil {
		return err.Error()
	}
	var k v1beta1.KubeletConfiguration
	err = kjson.UnmarshalCaseSensitivePreserveInts(b, &k)
	if err == nil {
		return ""
	}
	var mismatch *json.UnmarshalTypeError
	if errors.As(err, &mismatch) {
		return fmt.Sprintf("must be %s, is a %s", wanted(mismatch.Type.String()), mismatch.Value)
	}
	why := err.Error()
	// "json: cannot unmarshal string into Go struct field X.y of type int32"
	if head, kind, ok := strings.Cut(why, " of type "); ok && strings.HasPrefix(head, "json: cannot unmarshal ") {
		is := strings.Fields(strings.TrimPrefix(head, "json: cannot unmarshal "))[0]
		return fmt.Sprintf("must be %s, is a %s", wanted(kind), is)
	}
	return "cannot be read: " + why
}

// wanted describes a type of the API in words.
func wanted(kind string) string {
	if of, list := strings.CutPrefix(kind, "[]"); list {
		return "a list of " + of[strings.LastIndexByte(of, '.')+1:]
	}
	return kind
}

func shown(v any) any {
	switch v.(type) {
	case map[string]any, []any:
		b, err := json.Marshal(v)
		if err != nil {
			return nil
		}
		return string(b)
	}
	return v
}

// dropIns lists the drop-in files below dir in the order of their paths.
func dropIns(dir string) ([]string, error) {
	if dir == "" {
		return nil, nil
	}
	var paths []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() || filepath.Ext(path) != dropInSuffix {
			return nil
		}
		// Symlinks to regular files are followed. Reading anything else, a FIFO for example, might block.
		if i, err := os.Stat(path); err != nil {
			return err
		} else if !i.Mode().IsRegular() {
			return fmt.Errorf("%s is not a regular file", path)
		}
		paths = append(paths, path)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("--config-dir: list drop-in files: %w", err)
	}
	return paths, nil
}

// mergePatch merges patch into doc by RFC 7386: maps are merged, null deletes, everything
// else replaces.
func mergePatch(doc, patch map[string]any) {
	for k, v := range patch {
		switch v := v.(type) {
		case nil:
			delete(doc, k)
		case map[string]any:
			child, ok := doc[k].(map[string]any)
			if !ok {
				child = map[string]any{}
			}
			mergePatch(child, v)
			doc[k] = child
		default:
			doc[k] = v
		}
	}
}

func toAny(m map[string]string) map[string]any {
	out := make(map[string]any, len(m))
	for k, v := range m {
		out[k] = v
	}
	return out
}

func firstLine(err error) string {
	return strings.Join(strings.Fields(err.Error()), " ")
}
