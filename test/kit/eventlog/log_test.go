package eventlog

import (
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"keelson/internal/pods/pod"
)

var (
	_ pod.Events = (*Log)(nil)
	_ pod.Events = Discard{}
)

func TestLog(t *testing.T) {
	var l Log
	if l.Last() != "" || len(l.Lines()) != 0 {
		t.Errorf("a new log has %q", l.Lines())
	}
	web := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web"}}
	l.Pod(web, "main", "Warning", "Failed", "no such file")
	l.Pod(web, "", "Normal", "Killing", "it ends")
	l.Node("Normal", "Starting", "it starts")
	l.Add("claim c", "Warning", "Failed", "no space")
	lines := []string{
		"web/main Warning Failed no such file",
		"web Normal Killing it ends",
		"node Normal Starting it starts",
		"claim c Warning Failed no space",
	}
	texts := []string{
		"Warning Failed no such file",
		"Normal Killing it ends",
		"Normal Starting it starts",
		"Warning Failed no space",
	}
	if got := l.Lines(); !slices.Equal(got, lines) {
		t.Errorf("lines %q", got)
	}
	if got := l.Texts(); !slices.Equal(got, texts) {
		t.Errorf("texts %q", got)
	}
	if l.Last() != lines[3] || l.Count("Failed") != 2 || !l.Has("node Normal") || l.Has("web Warning") {
		t.Errorf("last %q, %d of a reason", l.Last(), l.Count("Failed"))
	}
	if got := l.Take(); !slices.Equal(got, lines) {
		t.Errorf("took %q", got)
	}
	l.Node("Normal", "Starting", "it starts")
	if got := l.TakeTexts(); !slices.Equal(got, texts[2:3]) || l.Last() != "" {
		t.Errorf("took %q, %q is left", got, l.Lines())
	}
}
