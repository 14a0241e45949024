package objectcache

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"keelson/test/kit/parity"
)

func TestTokens(t *testing.T) {
	parity.ProvesPart(t, 5, "VOL-46")
	f := newFakeAPI(t)
	now := time.Now()
	tokens := NewTokens(TokensConfig{
		Client: f.client(),
		Now:    func() time.Time { return now },
		Log:    slog.New(slog.DiscardHandler),
	})
	p := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "web", UID: "u1"},
		Spec:       v1.PodSpec{ServiceAccountName: "robot"},
	}
	ctx := context.Background()

	get := func() (string, time.Time) {
		t.Helper()
		v, at, err := tokens.Token(ctx, p, []string{"vault"}, ptr.To[int64](3600))
		if err != nil {
			t.Fatal(err)
		}
		return v, at
	}
	v, at := get()
	if v != "token-1" {
		t.Errorf("token = %s", v)
	}
	if after := at.Sub(now); after < 48*time.Minute-10*time.Second-2*time.Second ||
		after > 48*time.Minute+2*time.Second {
		t.Errorf("renewed after %v, want about 48 minutes", after)
	}
	req := f.asked[0]
	if ref := req.Spec.BoundObjectRef; ref.Kind != "Pod" || ref.APIVersion != "v1" || ref.Name != "web" ||
		ref.UID != "u1" ||
		req.Spec.Audiences[0] != "vault" || *req.Spec.ExpirationSeconds != 3600 {
		t.Errorf("asked for %+v", req.Spec)
	}
	if got := f.requests[0]; got != "token /api/v1/namespaces/a/serviceaccounts/robot/token" {
		t.Errorf("asked at %s", got)
	}
	now = at.Add(-time.Second)
	if v, _ := get(); v != "token-1" {
		t.Errorf("before its time the token is %s", v)
	}
	if v, _, err := tokens.Token(ctx, p, []string{"other"}, ptr.To[int64](3600)); err != nil || v != "token-2" {
		t.Errorf("another audience gets %s, %v, want a token of its own", v, err)
	}
	now = at
	f.refuse = 1
	if v, at := get(); v != "token-1" || !at.After(now) {
		t.Errorf("a failed renewal gives %s until %v, want the old token and a later try", v, at)
	}
	if v, _ := get(); v != "token-4" {
		t.Errorf("after its time the token is %s", v)
	}
	f.refuse = 1
	now = now.Add(3 * time.Hour)
	expired := `token "robot"/"a"/[]string{"vault"}/3600/` +
		`v1.BoundObjectReference{Kind:"Pod", APIVersion:"v1", Name:"` + p.Name + `", UID:"u1"}/"" ` +
		`expired and refresh failed: `
	if _, _, err := tokens.Token(ctx, p, []string{"vault"}, ptr.To[int64](3600)); err == nil ||
		!strings.HasPrefix(err.Error(), expired) || !strings.Contains(err.Error(), "not today") {
		t.Errorf("an expired token is served: %v", err)
	}
	now = time.Now()
	tokens.Forget("u1")
	if v, _ := get(); v != "token-6" {
		t.Errorf("an unregistered pod gets %s", v)
	}
	f.refuse = 1
	if _, _, err := tokens.Token(ctx, p, nil, nil); err == nil ||
		!strings.Contains(err.Error(), "failed to fetch token: ") {
		t.Errorf("err = %v", err)
	}
}

func TestTokenOfUnknownPod(t *testing.T) {
	f := newFakeAPI(t)
	tokens := NewTokens(TokensConfig{Client: f.client(), Now: time.Now, Log: slog.New(slog.DiscardHandler)})
	p := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "web", UID: "u1"},
		Spec:       v1.PodSpec{ServiceAccountName: "robot"},
	}
	f.lag = 3
	if v, _, err := tokens.Token(context.Background(), p, nil, nil); err != nil || v != "token-4" {
		t.Errorf("token = %s, %v, want one after three refusals", v, err)
	}
	f.lag = 1000
	p.UID = "u2"
	if _, _, err := tokens.Token(context.Background(), p, nil, nil); err == nil ||
		!strings.Contains(err.Error(), "different node") {
		t.Errorf("err = %v, want the refusal that lasts", err)
	}
	f.lag, p.UID = 0, "u3"
	f.absent.times, f.absent.kind, f.absent.name = 3, "pod", "web" // as the admission plugin NodeRestriction
	if _, _, err := tokens.Token(context.Background(), p, nil, nil); err != nil {
		t.Errorf("err = %v, want a token after three refusals", err)
	}
	p.UID, f.absent.times, f.absent.kind, f.absent.name = "u4", 1, "serviceaccounts", "robot"
	if _, _, err := tokens.Token(context.Background(), p, nil, nil); err == nil ||
		!strings.Contains(err.Error(), `serviceaccounts "robot" not found`) {
		t.Errorf("err = %v, want to hear at once that there is no such account", err)
	}
}

// A token is cached by pod, service account, audience and lifetime. Tokens that are created at the same time are
// renewed at different times, within ten seconds.
func TestTokenCacheKey(t *testing.T) {
	parity.ProvesPart(t, 5, "VOL-46")
	f := newFakeAPI(t)
	tokens := NewTokens(TokensConfig{Client: f.client(), Now: time.Now, Log: slog.New(slog.DiscardHandler)})
	seen := map[string]bool{}
	early, late := time.Hour, time.Duration(0)
	for i := range 40 {
		p := &v1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "web", UID: types.UID(fmt.Sprint("u", i/4))},
			Spec:       v1.PodSpec{ServiceAccountName: []string{"robot", "other"}[i/2%2]},
		}
		seconds := []int64{3600, 7200}[i%2]
		value, at, err := tokens.Token(t.Context(), p, []string{"vault"}, &seconds)
		if err != nil || seen[value] {
			t.Fatalf("token %d = %s, %v, want one of its own", i, value, err)
		}
		seen[value] = true
		if again, _, err := tokens.Token(t.Context(), p, []string{"vault"}, &seconds); err != nil || again != value {
			t.Errorf("asked again: %s, %v, want %s", again, err, value)
		}
		if seconds == 3600 {
			early, late = min(early, time.Until(at)), max(late, time.Until(at))
		}
	}
	if early < 48*time.Minute-12*time.Second || late > 48*time.Minute+2*time.Second || late-early < 2*time.Second {
		t.Errorf("renewed after %v to %v, want within ten seconds before 48 minutes", early, late)
	}
}

func TestRenewAt(t *testing.T) {
	parity.ProvesPart(t, 5, "VOL-46")
	issued := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, tc := range []struct {
		name         string
		life, jitter time.Duration
		want         time.Duration
	}{
		{"four fifths of a short life", time.Hour, 0, 48 * time.Minute},
		{"a day of a long one", 365 * 24 * time.Hour, 0, 24 * time.Hour},
		{"less the jitter", 10 * time.Minute, 7 * time.Second, 8*time.Minute - 7*time.Second},
	} {
		if got := renewAt(issued.Add(tc.life), tc.life, tc.jitter).Sub(issued); got != tc.want {
			t.Errorf("%s: renewed after %v, want %v", tc.name, got, tc.want)
		}
	}
}

func TestTokensWithoutServer(t *testing.T) {
	tokens := NewTokens(TokensConfig{Now: time.Now, Log: slog.New(slog.DiscardHandler)})
	if _, _, err := tokens.Token(context.Background(), &v1.Pod{}, nil, nil); err == nil ||
		!strings.Contains(err.Error(), "no API server configured") {
		t.Errorf("err = %v", err)
	}
}
