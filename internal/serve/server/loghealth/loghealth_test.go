package loghealth

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"keelson/test/kit/parity"
)

// pipe is the output of a log, which may be full or closed.
type pipe struct {
	bytes.Buffer
	full chan struct{} // writes wait until it is closed; nil: there is room
	err  error
}

func (p *pipe) Write(b []byte) (int, error) {
	if p.full != nil {
		<-p.full
	}
	if p.err != nil {
		return 0, p.err
	}
	return p.Buffer.Write(b)
}

func TestBlockedLogIsNotHealthy(t *testing.T) {
	parity.ProvesPart(t, 6, "SRV-13")
	synctest.Test(t, func(t *testing.T) {
		p := &pipe{}
		log, w := Watch(slog.New(slog.NewTextHandler(p, nil)))
		time.Sleep(time.Hour) // a log without lines is healthy
		if err := w.Healthy(); err != nil {
			t.Errorf("a quiet log: %v", err)
		}
		p.full = make(chan struct{})
		go log.With("a", 1).WithGroup("g").Info("held up", "b", 2)
		synctest.Wait()
		time.Sleep(patience)
		if err := w.Healthy(); err != nil {
			t.Errorf("a line that takes a while: %v", err)
		}
		time.Sleep(time.Second)
		if err := w.Healthy(); err == nil || !strings.Contains(err.Error(), "with 1 waiting") {
			t.Errorf("a line that takes for ever: %v, want what is wrong", err)
		}
		close(p.full)
		synctest.Wait()
		if err := w.Healthy(); err != nil || !strings.Contains(p.String(), "a=1 g.b=2") {
			t.Errorf("a line that got through: %v, %q", err, &p.Buffer)
		}
		p.err = io.ErrClosedPipe
		log.Info("lost")
		if err := w.Healthy(); !errors.Is(err, io.ErrClosedPipe) {
			t.Errorf("a log that is closed: %v", err)
		}
		p.err = nil
		log.Info("back")
		if err := w.Healthy(); err != nil {
			t.Errorf("a log that is back: %v", err)
		}
	})
}
