package server

import (
	"context"
	"log/slog"
	"net/http"
	"net/url"
	"time"
)

// MaxHTTP2Streams is how many requests one connection may have open.
const MaxHTTP2Streams = maxHTTP2Streams

// Served is one endpoint of the table, for tests made from it.
type Served struct {
	Pattern string
	Methods []string
	Rights  []string
	Debug   bool
}

// Table lists every pattern that is served.
func Table() []Served {
	var out []Served
	for _, a := range areas {
		for _, e := range a.endpoints {
			for _, p := range e.patterns {
				out = append(out, Served{p, e.methods, a.rights, a.debug})
			}
		}
	}
	return out
}

// SecureHandler returns the handler of the authenticated port, without TLS.
func (s *Server) SecureHandler() http.Handler { return s.secureHandler() }

// HTTPServer returns the HTTP server that all listeners use.
func HTTPServer(ctx context.Context, log *slog.Logger) *http.Server {
	return (&Server{cfg: Config{Log: log}}).httpServer(ctx, nil)
}

// HealthzRetry is how long the health port waits before it listens again.
func (s *Server) HealthzRetry() *time.Duration { return &s.retry }

// JournalArgs returns the services of a query and its arguments of journalctl; nil if the query is rejected.
func JournalArgs(q url.Values) (services, args []string) {
	n, errs := parseNodeLogQuery(q)
	if n == nil || len(errs) > 0 || len(n.validate(func(string) error { return nil })) > 0 {
		return nil, nil
	}
	return n.services, n.journalArgs(n.services)
}
