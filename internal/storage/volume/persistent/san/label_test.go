package san

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"keelson/test/kit/parity"
)

// mountTool records its options, and mounts without the label: SELinux may be disabled on the
// machine.
const mountTool = `#!/bin/bash
args=()
for a; do
	case $a in context=*,defaults) a=${a#context=}; echo "${a%,defaults}" >> DIR/labels; a=defaults;; esac
	args+=("$a")
done
PATH=/usr/sbin:/usr/bin:/sbin:/bin exec mount "${args[@]}"
`

// A disk is mounted with the label, and the next agent finds the label of the disk and of a pod
// that uses it. Files of disks mounted without a label are relabelled by the runtime.
func TestMountDiskWithLabel(t *testing.T) {
	parity.ProvesPart(t, 7, "VOL-20")
	const label = "system_u:object_r:container_file_t:s0:c1,c2"
	for _, want := range []string{"", label} {
		m := newMachine(t)
		must(t, os.WriteFile(filepath.Join(m.dir, "mount"), []byte(strings.ReplaceAll(mountTool, "DIR", m.dir)), 0o755))
		p := NewISCSI(m.config())
		r := m.request("u1", p.Name(), "pv1", target(0, nil), false)
		if takes, err := p.TakesLabel(t.Context(), r.Spec); err != nil || !takes {
			t.Fatalf("it takes no label: %v", err)
		}
		r.Label = want
		must(t, p.Stage(t.Context(), r))
		text, err := os.ReadFile(filepath.Join(m.dir, "labels"))
		if want == "" && err == nil || want != "" && string(text) != `"`+want+`"`+"\n" {
			t.Errorf("mounted with %q, %v, want %q", text, err, want)
		}
		out, err := p.Publish(t.Context(), r)
		must(t, err)
		if out.Relabel != (want == "") {
			t.Errorf("with label %q the runtime is to label the files: %v", want, out.Relabel)
		}
		p = NewISCSI(m.config())
		all, err := p.Devices()
		if err != nil || len(all) != 1 || all[0].Label != want {
			t.Errorf("found %+v, %v", all, err)
		}
		if got, err := p.DeviceOf(r.Place); err != nil || got.Label != want {
			t.Errorf("the pod has %+v, %v", got, err)
		}
		must(t, p.Unpublish(t.Context(), r.Place))
		must(t, p.Unstage(t.Context(), all[0]))
		m.clean(p)
	}
}
