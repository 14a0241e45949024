package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"keelson/internal/config"
)

// Logs in JSON have the keys that collectors of Kubernetes' logs look for.
func TestJSONLogKeys(t *testing.T) {
	cfg := &config.Config{}
	cfg.Kubelet.Logging.Format = "json"
	cfg.Kubelet.Logging.Verbosity = 4
	var out bytes.Buffer
	log := newLogger(&out, cfg, &slog.LevelVar{})
	log.Info("listening", "took", 1500*time.Microsecond)
	log.Debug("step")
	log.Error("cannot stop", "err", errors.New("no"))
	var lines []map[string]any
	for text := range strings.Lines(out.String()) {
		var line map[string]any
		if err := json.Unmarshal([]byte(text), &line); err != nil {
			t.Fatalf("%v: %s", err, text)
		}
		ts, _ := line["ts"].(float64)
		if since := time.Since(time.UnixMilli(int64(ts))); since < 0 || since > time.Minute {
			t.Errorf("ts %v is not now in milliseconds", line["ts"])
		}
		if caller, _ := line["caller"].(string); !strings.HasPrefix(caller, "kubelet/log_test.go:") {
			t.Errorf("caller %q", caller)
		}
		lines = append(lines, line)
	}
	if len(lines) != 3 || lines[0]["v"] != 0.0 || lines[0]["msg"] != "listening" || lines[0]["took"] != "2ms" || lines[0]["level"] != nil ||
		lines[1]["v"] != 4.0 || lines[2]["v"] != nil || lines[2]["level"] != "ERROR" || lines[2]["err"] != "no" {
		t.Errorf("%s", &out)
	}
}
