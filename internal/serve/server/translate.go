package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	constants "k8s.io/apimachinery/pkg/util/remotecommand"
	"k8s.io/client-go/tools/remotecommand"
	clientspdy "k8s.io/client-go/transport/spdy"
	"k8s.io/client-go/util/exec"
	"k8s.io/streaming/pkg/httpstream/spdy"
	"k8s.io/streaming/pkg/httpstream/wsstream"
)

const (
	spdyPing          = 5 * time.Second
	statusWriteWithin = 10 * time.Second
)

// translate serves clients that use v5.channel.k8s.io, which runtimes do not support: each WebSocket channel becomes a
// SPDY stream. Unlike older WebSocket protocols, v5 can signal the end of stdin.
func (s *Server) translate(w http.ResponseWriter, r *http.Request, target *url.URL, opts StreamOptions) {
	front := wsstream.NewConn(map[string]wsstream.ChannelProtocolConfig{
		constants.StreamProtocolV5Name: {Binary: true, Channels: channels(opts)},
	})
	front.SetIdleTimeout(s.cfg.StreamIdleTimeout)
	_, ch, err := front.Open(w, r)
	if err != nil {
		s.cfg.Log.Debug("failed to upgrade to WebSocket", "err", err, "remote", r.RemoteAddr)
		return // Open has written the response
	}
	defer front.Close()
	// An empty message signals to the client that the connection is established.
	if _, err := ch[firstOutput(opts)].Write([]byte{}); err != nil {
		return
	}
	// The context ends with the server and with the client's connection, because the WebSocket reads from it.
	st := statusOf(s.overSPDY(r.Context(), target, opts, ch))
	b, err := json.Marshal(st)
	if err != nil {
		s.cfg.Log.Error("failed to encode status of stream", "err", err)
		return
	}
	front.SetWriteDeadline(statusWriteWithin)
	if _, err := ch[constants.StreamErr].Write(b); err != nil {
		s.cfg.Log.Debug("failed to write status of stream", "err", err, "remote", r.RemoteAddr)
	}
}

// overSPDY runs the session with the runtime.
func (s *Server) overSPDY(ctx context.Context, target *url.URL, opts StreamOptions, ch []io.ReadWriteCloser) error {
	rt, err := spdy.NewRoundTripperWithConfig(spdy.RoundTripperConfig{
		PingPeriod: spdyPing,
		// The runtime is local, so proxies in the environment do not apply.
		Proxier: func(*http.Request) (*url.URL, error) { return nil, nil },
	})
	if err != nil {
		return err
	}
	session, err := remotecommand.NewSPDYExecutorRejectRedirects(rt,
		clientspdy.NewUpgraderForStreaming(rt), http.MethodPost, target)
	if err != nil {
		return err
	}
	so := remotecommand.StreamOptions{Tty: opts.TTY}
	if opts.Stdin {
		so.Stdin = ch[constants.StreamStdIn]
	}
	if opts.Stdout {
		so.Stdout = ch[constants.StreamStdOut]
	}
	if opts.Stderr {
		so.Stderr = ch[constants.StreamStdErr]
	}
	if opts.TTY {
		so.TerminalSizeQueue = &sizes{dec: json.NewDecoder(ch[constants.StreamResize])}
	}
	return session.StreamWithContext(ctx, so)
}

// sizes is the queue of terminal sizes from the client.
type sizes struct{ dec *json.Decoder }

// Next returns the next size, or nil at the end of the queue.
func (q *sizes) Next() *remotecommand.TerminalSize {
	var s remotecommand.TerminalSize
	if err := q.dec.Decode(&s); err != nil {
		return nil
	}
	return &s
}

func channels(opts StreamOptions) []wsstream.ChannelType {
	either := func(wanted bool, t wsstream.ChannelType) wsstream.ChannelType {
		if wanted {
			return t
		}
		return wsstream.IgnoreChannel
	}
	c := make([]wsstream.ChannelType, 5)
	c[constants.StreamStdIn] = either(opts.Stdin, wsstream.ReadChannel)
	c[constants.StreamStdOut] = either(opts.Stdout, wsstream.WriteChannel)
	c[constants.StreamStdErr] = either(opts.Stderr, wsstream.WriteChannel)
	c[constants.StreamErr] = wsstream.WriteChannel
	// A channel without a reader would block the others.
	c[constants.StreamResize] = either(opts.TTY, wsstream.ReadChannel)
	return c
}

func firstOutput(opts StreamOptions) int {
	switch {
	case opts.Stdout:
		return constants.StreamStdOut
	case opts.Stderr:
		return constants.StreamStdErr
	}
	return constants.StreamErr
}

// statusOf returns the status that the client gets at the end of its session.
func statusOf(err error) metav1.Status {
	var api *apierrors.StatusError
	var exit exec.CodeExitError
	switch {
	case err == nil:
		return metav1.Status{Status: metav1.StatusSuccess}
	case errors.As(err, &api):
		return api.ErrStatus
	case errors.As(err, &exit):
		return metav1.Status{
			Status: metav1.StatusFailure,
			Reason: constants.NonZeroExitCodeReason,
			Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{
				{Type: constants.ExitCodeCauseType, Message: strconv.Itoa(exit.ExitStatus())},
			}},
			Message: fmt.Sprintf("command terminated with non-zero exit code: %v", exit),
		}
	}
	return apierrors.NewInternalError(err).ErrStatus
}
