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

	"keelson/internal/node/checkpoint"
)

// Config holds what a Rotator is built from. Fields are required unless they say
// otherwise.
type Config struct {
	Signer string
	Store  *Store
	// Template is what the certificate is to say; nil while that is not known. It
	// may change; Poke tells of it.
	Template func() *x509.CertificateRequest
	// Requests is the way to the API server for an agent with this certificate,
	// nil if it has none that is valid.
	Requests func(current *tls.Certificate) Requests
	// First is the certificate until the first one is issued, which is asked for at
	// once. Optional.
	First *tls.Certificate
	// GiveUp ends Run after so long without a valid certificate, if the API server
	// answers: somebody must bring new credentials, which are read at the start.
	// Optional: zero means never.
	GiveUp time.Duration

	OnChange  func()                    // called when another certificate is in force. Optional.
	OnRotated func(lived time.Duration) // how old the one before became. Optional.
	OnFailure func()                    // called for each try that fails. Optional.
	// OnRefused is told of a certificate that the agent came with and that the API
	// server does not know, once there is another in its place. Optional: without it
	// there is no other way to ask for one.
	OnRefused func(error)
	Log       *slog.Logger
	Now       func() time.Time // optional
}

// Rotator keeps one certificate valid.
//
//	none ──issued──► valid ──due, or says too little──► valid, asking ──issued──► valid
//	  ▲                │                                     │
//	  └────expired─────┴──────────────expired────────────────┘
type Rotator struct {
	cfg  Config
	poke chan struct{} // the template may be another one; capacity 1

	mu      sync.Mutex
	cert    *tls.Certificate // the last one; nil before
	changed chan struct{}    // closed and replaced with it
	force   bool             // the certificate is only to begin with
	healthy bool             // the API server answers as one that is well does
	issued  bool             // the certificate was issued to this process
	refused bool             // the API server does not know it
	chance  float64          // when in its time the certificate is renewed
}

// New makes a Rotator over what its store holds.
func New(cfg Config) (*Rotator, error) {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	r := &Rotator{cfg: cfg, poke: make(chan struct{}, 1), changed: make(chan struct{}), chance: rand.Float64()}
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

// Current is the certificate in force, or nil if there is none that is valid.
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

// Valid waits for a certificate that is valid.
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

// Refused is told that the API server took a request with the certificate for
// nobody's. One that was good when it was stored may be of an authority that is not
// asked any more, so another one is asked for as if there was none. Once: if that
// one is refused as well, the fault is not the certificate's.
func (r *Rotator) Refused(cert *tls.Certificate) {
	r.mu.Lock()
	due := r.cfg.OnRefused != nil && !r.issued && !r.refused && cert == r.cert
	r.refused = r.refused || due
	r.mu.Unlock()
	if due {
		r.cfg.Log.Warn("the API server does not know the node's certificate", "signer", r.cfg.Signer, "subject", cert.Leaf.Subject.String(), "expires", cert.Leaf.NotAfter.UTC().Format(time.RFC3339))
		r.Poke()
	}
}

// Leaf is the certificate in force, valid or not; nil if there never was one.
func (r *Rotator) Leaf() *x509.Certificate {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.cert == nil {
		return nil
	}
	return r.cert.Leaf
}

// Poke says that the template may be another one.
func (r *Rotator) Poke() {
	select {
	case r.poke <- struct{}{}:
	default: // one waiting poke says all there is to say
	}
}

// Run keeps the certificate valid until ctx ends.
func (r *Rotator) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	if r.cfg.GiveUp > 0 {
		g.Go(func() error { return r.untilHopeless(ctx) })
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

// clockEvery is how often the clock is looked at while a certificate is good: timers
// do not know of a clock that is set, nor of a machine that was asleep.
const clockEvery = time.Minute

// untilDue waits until a certificate is to be asked for. It is false when that is
// not so after all.
func (r *Rotator) untilDue(ctx context.Context) bool {
	want := r.cfg.Template()
	var timer, look <-chan time.Time
	switch at, why := r.next(want); {
	case want == nil:
	case !at.After(r.cfg.Now()):
		r.cfg.Log.Info("asking for a certificate", "signer", r.cfg.Signer, "because", why)
		return true
	default:
		r.cfg.Log.Info("the next certificate is due later", "signer", r.cfg.Signer, "at", at.UTC().Format(time.RFC3339), "expires", r.Leaf().NotAfter.UTC().Format(time.RFC3339))
		tick := time.NewTicker(clockEvery)
		defer tick.Stop()
		timer, look = time.After(at.Sub(r.cfg.Now())), tick.C
	}
	for {
		select {
		case <-ctx.Done():
			return false
		case <-timer:
			r.cfg.Log.Info("asking for a certificate", "signer", r.cfg.Signer, "because", "the one in force is old")
			return true
		case <-look:
			if at, _ := r.next(want); !at.After(r.cfg.Now()) {
				return false // look again
			}
		case <-r.poke:
			if at, _ := r.next(want); !same(want, r.cfg.Template()) || want != nil && !at.After(r.cfg.Now()) {
				return false // look again
			}
		}
	}
}

// next is when a certificate is to be asked for, and why.
func (r *Rotator) next(want *x509.CertificateRequest) (time.Time, string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case want == nil:
		return time.Time{}, ""
	case r.validLocked() == nil:
		return time.Time{}, "there is none that is valid"
	case r.refused:
		return time.Time{}, "the API server does not know the one in force"
	case r.force:
		return time.Time{}, "the one in force is only to begin with"
	}
	if why := lacking(r.cert.Leaf, want); why != "" {
		return time.Time{}, "the one in force " + why
	}
	return due(r.cert.Leaf, r.chance), ""
}

// renew asks until there is an answer, or until something else is to be asked for.
func (r *Rotator) renew(ctx context.Context) {
	wait, said := retryFirst, ""
	for ctx.Err() == nil {
		want := r.cfg.Template()
		if want == nil {
			return
		}
		err := r.whileWanted(ctx, want, func(ctx context.Context) error { return r.try(ctx, want) })
		if err == nil || ctx.Err() != nil {
			return
		}
		if errors.Is(err, errOther) {
			continue
		}
		if err.Error() != said {
			said = err.Error()
			r.cfg.Log.Warn("cannot get a certificate, will keep trying", "signer", r.cfg.Signer, "err", err)
		}
		if r.cfg.OnFailure != nil {
			r.cfg.OnFailure()
		}
		// A little by chance, as all nodes of a cluster may have lost the same server.
		pause := wait + time.Duration(rand.Float64()*0.1*float64(wait))
		_ = r.whileWanted(ctx, want, func(ctx context.Context) error {
			select {
			case <-ctx.Done():
			case <-time.After(pause):
			}
			return nil
		}) // wanted or not, the next try asks for what is wanted then
		wait = min(2*wait, retryLast)
	}
}

// errOther says that another certificate is wanted by now.
var errOther = errors.New("another certificate is wanted by now")

// whileWanted does something that ends when another certificate is wanted than when
// it began.
func (r *Rotator) whileWanted(ctx context.Context, want *x509.CertificateRequest, do func(context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	done := make(chan error, 1)
	go func() { done <- do(ctx) }()
	for {
		select {
		case err := <-done:
			return err
		case <-r.poke:
			if !same(want, r.cfg.Template()) {
				cancel(errOther)
				<-done
				return errOther
			}
		}
	}
}

// try asks once and puts the answer in force.
func (r *Rotator) try(ctx context.Context, want *x509.CertificateRequest) error {
	key, pem, err := newKey()
	if err != nil {
		return err
	}
	cert, err := r.ask(ctx, want, key)
	if err != nil {
		return err
	}
	r.mu.Lock()
	refused, brought := r.refused, r.force
	r.mu.Unlock()
	file := "" // of the one that is replaced
	if !brought {
		file = r.cfg.Store.inForce()
	}
	pair, err := r.cfg.Store.Update(cert, pem)
	if err != nil {
		return err
	}
	r.take(pair)
	if refused {
		r.cfg.OnRefused(putAside(file))
	}
	return nil
}

var errUnknown = errors.New("the API server does not know the certificate")

// putAside puts aside the file of a certificate that the API server does not know, and
// says so. One that has no file came with the kubeconfig.
func putAside(file string) error {
	if file == "" {
		return fmt.Errorf("use the kubeconfig: %w; the node has another one by now", errUnknown)
	}
	return checkpoint.PutAside(file, errUnknown)
}

func (r *Rotator) ask(ctx context.Context, want *x509.CertificateRequest, key *ecdsa.PrivateKey) ([]byte, error) {
	with := r.Current()
	r.mu.Lock()
	if r.refused {
		with = nil
	}
	r.mu.Unlock()
	api := r.cfg.Requests(with)
	asked, err := ask(ctx, api, "", r.cfg.Signer, want, key)
	r.heard(err)
	if err != nil {
		return nil, err
	}
	r.cfg.Log.Debug("waiting for a certificate to be approved and issued", "signer", r.cfg.Signer, "request", asked.Name)
	ctx, cancel := context.WithTimeoutCause(ctx, requestPatience, fmt.Errorf("not within %v", requestPatience))
	defer cancel()
	return await(ctx, api, asked)
}

// heard judges the API server by its answer to a request. No answer, and those of
// proxies before it, say that it is not well; that it refuses says that it is.
func (r *Rotator) heard(err error) {
	if err == nil {
		return // what comes of it will tell
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.healthy = apierrors.IsUnauthorized(err) || !apierrors.IsUnexpectedServerError(err) && (apierrors.IsNotFound(err) || apierrors.IsForbidden(err))
}

// take puts a certificate in force.
func (r *Rotator) take(cert *tls.Certificate) {
	r.mu.Lock()
	old := r.cert
	r.cert, r.force, r.healthy, r.issued, r.refused, r.chance = cert, false, true, true, false, rand.Float64()
	close(r.changed)
	r.changed = make(chan struct{})
	r.mu.Unlock()
	r.cfg.Log.Info("certificate is in force", "signer", r.cfg.Signer, "file", r.cfg.Store.Path(), "expires", cert.Leaf.NotAfter.UTC().Format(time.RFC3339))
	if old != nil && r.cfg.OnRotated != nil {
		r.cfg.OnRotated(r.cfg.Now().Sub(old.Leaf.NotBefore))
	}
	if r.cfg.OnChange != nil {
		r.cfg.OnChange()
	}
}

// hopelessEvery is how often an agent without a certificate looks whether the API
// server answers.
const hopelessEvery = 10 * time.Second

// untilHopeless returns an error when there was no valid certificate for too long,
// although the API server answers.
func (r *Rotator) untilHopeless(ctx context.Context) error {
	since := time.Now() // there was a certificate, or the agent has started
	said := false
	for {
		r.mu.Lock()
		changed, healthy := r.changed, r.healthy
		wait := hopelessEvery
		if r.cert != nil {
			if left := r.cert.Leaf.NotAfter.Sub(r.cfg.Now()); left > 0 {
				wait, said = min(left, clockEvery), false
				since = time.Now().Add(wait)
			}
		}
		r.mu.Unlock()
		switch without := time.Since(since); {
		case without < r.cfg.GiveUp:
			wait = min(wait, r.cfg.GiveUp-without)
		case healthy:
			return fmt.Errorf("it has been %v since a valid client certificate was found, and the API server is responsive: new credentials are needed", r.cfg.GiveUp)
		case !said:
			said = true
			r.cfg.Log.Error("there is no valid client certificate, and the API server does not answer; new credentials may be needed", "since", since.UTC().Format(time.RFC3339))
		}
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		case <-time.After(wait):
		}
	}
}
