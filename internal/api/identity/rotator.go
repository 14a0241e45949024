package identity

import (
	"context"
	"crypto/ecdsa"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"keelson/internal/host/checkpoint"
	"keelson/internal/host/clock"
)

// Config holds the configuration of a Rotator. All fields are required unless noted otherwise.
type Config struct {
	Signer string
	Store  *Store
	// Template returns the template of the certificate, or nil while it is not known. Trigger must be called when it
	// changes.
	Template func() *x509.CertificateRequest
	// Requests returns the API for an agent with this certificate, which is nil if there is no valid one.
	Requests func(current *tls.Certificate) Requests
	// First is the certificate until the first one is issued, which is requested immediately. Optional.
	First *tls.Certificate
	// GiveUp ends Run after this time without a valid certificate if the API server responds: new credentials are
	// needed, and they are only read at the start. Optional: zero means never.
	GiveUp time.Duration

	OnChange  func()                    // called when the current certificate changes. Optional.
	OnRotated func(lived time.Duration) // called with the lifetime of the previous certificate. Optional.
	OnFailure func()                    // called for each failed attempt. Optional.
	// OnRejected is called after the agent has replaced a certificate that it had at its start and that the API server
	// rejected. Optional: without it a rejected certificate is not replaced, because there are no other credentials to
	// request one.
	OnRejected func(error)
	Log        *slog.Logger
	Now        func() time.Time // optional
}

// Rotator rotates one certificate.
//
//	none ──issued──► valid ──due, or does not match──► valid, requesting ──issued──► valid
//	  ▲                │                                     │
//	  └────expired─────┴──────────────expired────────────────┘
type Rotator struct {
	cfg     Config
	trigger chan struct{} // capacity 1: the template may have changed

	mu      sync.Mutex
	cert    *tls.Certificate // the current one, possibly expired
	changed chan struct{}    // closed and replaced when cert changes
	force   bool             // the certificate has to be replaced
	healthy bool             // the API server responds
	issued  bool             // the certificate was issued to this process
	refused bool             // the API server rejected it
	chance  float64          // determines when the certificate is due
}

// New returns a Rotator with the current certificate of its store.
func New(cfg Config) (*Rotator, error) {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	r := &Rotator{cfg: cfg, trigger: make(chan struct{}, 1), changed: make(chan struct{}), chance: rand.Float64()}
	var err error
	r.cert, err = cfg.Store.Current()
	switch {
	case err != nil && !errors.Is(err, ErrNone):
		return nil, err
	case r.cert == nil || cfg.Now().After(r.cert.Leaf.NotAfter):
		r.cert, r.force = cfg.First, true
	}
	return r, nil
}

// Current returns the current certificate, or nil if there is no valid one.
func (r *Rotator) Current() *tls.Certificate {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.validLocked()
}

func (r *Rotator) validLocked() *tls.Certificate {
	if r.cert == nil || r.cfg.Now().After(r.cert.Leaf.NotAfter) {
		return nil
	}
	return r.cert
}

// Valid waits for a valid certificate.
func (r *Rotator) Valid(ctx context.Context) (*tls.Certificate, error) {
	for {
		r.mu.Lock()
		cert, changed := r.validLocked(), r.changed
		r.mu.Unlock()
		if cert != nil {
			return cert, nil
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("wait for the node's certificate: %w", ctx.Err())
		case <-changed:
		}
	}
}

// Refused is called when the API server rejected a request with the certificate as unauthenticated. A stored
// certificate may be of a CA that the server no longer trusts, so another one is requested as if there was none. That
// happens once: if the new one is rejected too, the CA is not the cause.
func (r *Rotator) Refused(cert *tls.Certificate) {
	r.mu.Lock()
	due := r.cfg.OnRejected != nil && !r.issued && !r.refused && cert == r.cert
	r.refused = r.refused || due
	r.mu.Unlock()
	if due {
		r.cfg.Log.Warn("API server rejected certificate of the node",
			"signer", r.cfg.Signer, "subject", cert.Leaf.Subject.String(),
			"expires", cert.Leaf.NotAfter.UTC().Format(time.RFC3339))
		r.Trigger()
	}
}

// Leaf returns the current certificate, which may have expired, or nil.
func (r *Rotator) Leaf() *x509.Certificate {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.cert == nil {
		return nil
	}
	return r.cert.Leaf
}

// Trigger notes that the template may have changed.
func (r *Rotator) Trigger() {
	select {
	case r.trigger <- struct{}{}:
	default: // one pending trigger is enough
	}
}

// Run rotates the certificate until ctx ends.
func (r *Rotator) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	if r.cfg.GiveUp > 0 {
		g.Go(func() error { return r.untilCredentialsNeeded(ctx) })
	}
	g.Go(func() error {
		for ctx.Err() == nil {
			if r.untilDue(ctx) {
				r.renew(ctx)
			}
		}
		return nil
	})
	return g.Wait()
}

// clockCheckPeriod is how often the clock is checked: timers do not account for a clock that is set or a suspended
// machine.
const clockCheckPeriod = time.Minute

// untilDue waits until a certificate has to be requested. It returns false if the condition has to be checked again.
func (r *Rotator) untilDue(ctx context.Context) bool {
	want := r.cfg.Template()
	var timer, look <-chan time.Time
	switch at, why := r.next(want); {
	case want == nil:
	case !at.After(r.cfg.Now()):
		r.cfg.Log.Info("requesting certificate", "signer", r.cfg.Signer, "reason", why)
		return true
	default:
		r.cfg.Log.Info("scheduled certificate rotation",
			"signer", r.cfg.Signer, "at", at.UTC().Format(time.RFC3339),
			"expires", r.Leaf().NotAfter.UTC().Format(time.RFC3339))
		tick := time.NewTicker(clockCheckPeriod)
		defer tick.Stop()
		timer, look = time.After(at.Sub(r.cfg.Now())), tick.C
	}
	for {
		select {
		case <-ctx.Done():
			return false
		case <-timer:
			r.cfg.Log.Info("requesting certificate", "signer", r.cfg.Signer, "reason", "rotation is due")
			return true
		case <-look:
			if at, _ := r.next(want); !at.After(r.cfg.Now()) {
				return false
			}
		case <-r.trigger:
			if at, _ := r.next(want); !sameTemplate(want, r.cfg.Template()) || want != nil && !at.After(r.cfg.Now()) {
				return false
			}
		}
	}
}

// next returns when a certificate has to be requested, and why.
func (r *Rotator) next(want *x509.CertificateRequest) (time.Time, string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case want == nil:
		return time.Time{}, ""
	case r.validLocked() == nil:
		return time.Time{}, "no valid certificate"
	case r.refused:
		return time.Time{}, "API server rejected the current certificate"
	case r.force:
		return time.Time{}, "current certificate is temporary"
	}
	if why := mismatch(r.cert.Leaf, want); why != "" {
		return time.Time{}, "current certificate " + why
	}
	return due(r.cert.Leaf, r.chance), ""
}

// renew requests a certificate with retries, until it is issued or no longer needed.
func (r *Rotator) renew(ctx context.Context) {
	// With jitter, because all nodes of a cluster may have lost the same server.
	backoff, logged := clock.Jittered(clock.Backoff(retryFirst, retryLast), 0.1), ""
	for ctx.Err() == nil {
		want := r.cfg.Template()
		if want == nil {
			return
		}
		err := r.untilTemplateChanges(ctx, want, func(ctx context.Context) error { return r.requestOnce(ctx, want) })
		if err == nil || ctx.Err() != nil {
			return
		}
		if errors.Is(err, errTemplateChanged) {
			continue
		}
		if err.Error() != logged {
			logged = err.Error()
			r.cfg.Log.Warn("failed to get certificate", "signer", r.cfg.Signer, "err", err)
		}
		if r.cfg.OnFailure != nil {
			r.cfg.OnFailure()
		}
		pause := backoff.Step()
		_ = r.untilTemplateChanges(ctx, want, func(ctx context.Context) error {
			clock.Sleep(ctx, pause)
			return nil
		}) // the next attempt uses the current template
	}
}

// errTemplateChanged is the cause if the template has changed.
var errTemplateChanged = errors.New("the certificate template has changed")

// untilTemplateChanges calls do, and cancels it if the template changes.
func (r *Rotator) untilTemplateChanges(
	ctx context.Context, want *x509.CertificateRequest, do func(context.Context) error,
) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	done := make(chan error, 1)
	go func() { done <- do(ctx) }()
	for {
		select {
		case err := <-done:
			return err
		case <-r.trigger:
			if !sameTemplate(want, r.cfg.Template()) {
				cancel(errTemplateChanged)
				<-done
				return errTemplateChanged
			}
		}
	}
}

// requestOnce makes one request and puts the certificate in the store.
func (r *Rotator) requestOnce(ctx context.Context, want *x509.CertificateRequest) error {
	key, pem, err := newKey()
	if err != nil {
		return err
	}
	cert, err := r.request(ctx, want, key)
	if err != nil {
		return err
	}
	r.mu.Lock()
	refused, brought := r.refused, r.force
	r.mu.Unlock()
	file := "" // of the replaced certificate
	if !brought {
		file = r.cfg.Store.currentFile()
	}
	pair, err := r.cfg.Store.Update(cert, pem)
	if err != nil {
		return err
	}
	r.install(pair)
	if refused {
		r.cfg.OnRejected(putAside(file))
	}
	return nil
}

var errUnknown = errors.New("the API server does not accept the certificate")

// putAside sets aside the file of a certificate that the API server rejected, and returns an error about it. A
// certificate without a file was in the kubeconfig.
func putAside(file string) error {
	if file == "" {
		return fmt.Errorf("use the kubeconfig: %w; the node has another one by now", errUnknown)
	}
	return checkpoint.PutAside(file, errUnknown)
}

func (r *Rotator) request(ctx context.Context, want *x509.CertificateRequest, key *ecdsa.PrivateKey) ([]byte, error) {
	with := r.Current()
	r.mu.Lock()
	if r.refused {
		with = nil
	}
	r.mu.Unlock()
	api := r.cfg.Requests(with)
	asked, err := createRequest(ctx, api, "", r.cfg.Signer, want, key)
	r.observeResponse(err)
	if err != nil {
		return nil, err
	}
	r.cfg.Log.Debug("waiting for certificate signing request to be approved and issued",
		"signer", r.cfg.Signer, "request", asked.Name)
	ctx, cancel := context.WithTimeoutCause(ctx, requestTimeout, fmt.Errorf("timed out after %v", requestTimeout))
	defer cancel()
	return waitIssued(ctx, api, asked)
}

// observeResponse derives the health of the API server from its response. No response, or one of a proxy, means that it
// is not healthy. A rejection means that it is.
func (r *Rotator) observeResponse(err error) {
	if err == nil {
		return // install sets it when the certificate is issued
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.healthy = apierrors.IsUnauthorized(err) ||
		!apierrors.IsUnexpectedServerError(err) && (apierrors.IsNotFound(err) || apierrors.IsForbidden(err))
}

// install makes a certificate the current one.
func (r *Rotator) install(cert *tls.Certificate) {
	r.mu.Lock()
	old := r.cert
	r.cert, r.force, r.healthy, r.issued, r.refused, r.chance = cert, false, true, true, false, rand.Float64()
	close(r.changed)
	r.changed = make(chan struct{})
	r.mu.Unlock()
	r.cfg.Log.Info("certificate rotated",
		"signer", r.cfg.Signer, "file", r.cfg.Store.Path(), "expires", cert.Leaf.NotAfter.UTC().Format(time.RFC3339))
	if old != nil && r.cfg.OnRotated != nil {
		r.cfg.OnRotated(r.cfg.Now().Sub(old.Leaf.NotBefore))
	}
	if r.cfg.OnChange != nil {
		r.cfg.OnChange()
	}
}

// credentialsCheckPeriod is how often an agent without a certificate checks whether the API server responds.
const credentialsCheckPeriod = 10 * time.Second

// untilCredentialsNeeded returns an error after too long without a valid certificate although the API server responds.
func (r *Rotator) untilCredentialsNeeded(ctx context.Context) error {
	since := time.Now() // end of the last known validity of a certificate, or the start
	logged := false
	for {
		r.mu.Lock()
		changed, healthy := r.changed, r.healthy
		wait := credentialsCheckPeriod
		if r.cert != nil {
			if left := r.cert.Leaf.NotAfter.Sub(r.cfg.Now()); left > 0 {
				wait, logged = min(left, clockCheckPeriod), false
				since = time.Now().Add(wait)
			}
		}
		r.mu.Unlock()
		switch without := time.Since(since); {
		case without < r.cfg.GiveUp:
			wait = min(wait, r.cfg.GiveUp-without)
		case healthy:
			return fmt.Errorf(
				"it has been %v since a valid client certificate was found, and the API server is responsive: "+
					"new credentials are needed", r.cfg.GiveUp)
		case !logged:
			logged = true
			r.cfg.Log.Error(
				"no valid client certificate, and the API server does not respond; new credentials may be needed",
				"since", since.UTC().Format(time.RFC3339))
		}
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		case <-time.After(wait):
		}
	}
}
