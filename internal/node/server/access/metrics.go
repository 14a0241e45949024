package access

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// calls counts questions to the API server by the HTTP status of the answer.
type calls struct {
	total    *prometheus.CounterVec
	duration *prometheus.HistogramVec
}

func newCalls(total, duration string) calls {
	label := []string{"code"}
	return calls{
		total: prometheus.NewCounterVec(prometheus.CounterOpts{Name: total, Help: "Number of HTTP requests partitioned by status code."}, label),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: duration, Help: "Request latency in seconds. Broken down by status code.",
			Buckets: []float64{0.25, 0.5, 0.7, 1, 1.5, 3, 5, 10},
		}, label),
	}
}

func (c calls) count(call func() error) error {
	start := time.Now()
	err := call()
	code := "<error>"
	var status apierrors.APIStatus
	switch {
	case err == nil:
		code = "201" // what a review that was made is answered with
	case errors.As(err, &status) && status.Status().Code != 0:
		code = strconv.Itoa(int(status.Status().Code))
	}
	c.total.WithLabelValues(code).Inc()
	c.duration.WithLabelValues(code).Observe(time.Since(start).Seconds())
	return err
}

func register(r prometheus.Registerer, collectors ...prometheus.Collector) error {
	if r == nil {
		return nil
	}
	for _, c := range collectors {
		if err := r.Register(c); err != nil {
			return fmt.Errorf("register access metrics: %w", err)
		}
	}
	return nil
}
