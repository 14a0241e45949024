package server

import (
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// logOptions parses the query of a log request. Unknown parameters are ignored, as by the API server. The first value
// of a repeated parameter counts.
func logOptions(q url.Values) (*v1.PodLogOptions, error) {
	o := &v1.PodLogOptions{
		Container:                    q.Get("container"),
		Follow:                       queryBool(q, "follow"),
		Previous:                     queryBool(q, "previous"),
		Timestamps:                   queryBool(q, "timestamps"),
		InsecureSkipTLSVerifyBackend: queryBool(q, "insecureSkipTLSVerifyBackend"),
	}
	var errs [3]error
	o.SinceSeconds, errs[0] = queryInt(q, "sinceSeconds")
	o.LimitBytes, errs[1] = queryInt(q, "limitBytes")
	switch tail := q.Get("tail"); tail {
	case "":
		o.TailLines, errs[2] = queryInt(q, "tailLines")
	case "all": // the old value for no limit
	default:
		o.TailLines, errs[2] = queryInt(q, "tail")
	}
	if err := errors.Join(errs[:]...); err != nil {
		return nil, err
	}
	if s := q.Get("sinceTime"); s != "" {
		t, err := time.Parse(time.RFC3339, s)
		if err != nil {
			return nil, fmt.Errorf("parse sinceTime: %w", err)
		}
		o.SinceTime = &metav1.Time{Time: t.Local()}
	}
	if q.Has("stream") {
		s := q.Get("stream")
		o.Stream = &s
	}
	return o, nil
}

// queryBool parses a boolean as the API server does: a parameter that is present is true unless it is false or 0.
func queryBool(q url.Values, key string) bool {
	v, ok := q[key]
	if !ok {
		return false
	}
	return len(v) == 0 || !strings.EqualFold(v[0], "false") && v[0] != "0"
}

func queryInt(q url.Values, key string) (*int64, error) {
	if !q.Has(key) {
		return nil, nil
	}
	n, err := strconv.ParseInt(q.Get(key), 10, 64)
	if err != nil {
		return nil, fmt.Errorf("parse %s: %w", key, err)
	}
	return &n, nil
}

// validLogOptions validates the options. A specific stream cannot be combined with a number of lines, because lines of
// both streams are counted.
func validLogOptions(o *v1.PodLogOptions) error {
	switch {
	case o.TailLines != nil && *o.TailLines < 0:
		return errors.New("tailLines must be greater than or equal to 0")
	case o.LimitBytes != nil && *o.LimitBytes < 1:
		return errors.New("limitBytes must be greater than 0")
	case o.SinceSeconds != nil && o.SinceTime != nil:
		return errors.New("at most one of sinceTime or sinceSeconds may be specified")
	case o.SinceSeconds != nil && *o.SinceSeconds < 1:
		return errors.New("sinceSeconds must be greater than 0")
	case o.Stream == nil:
		return nil
	case *o.Stream != v1.LogStreamAll && *o.Stream != v1.LogStreamStdout && *o.Stream != v1.LogStreamStderr:
		return fmt.Errorf("stream %q is not one of All, Stdout, Stderr", *o.Stream)
	case o.TailLines != nil && *o.Stream != v1.LogStreamAll:
		return errors.New("tailLines and a specific stream cannot both be set")
	}
	return nil
}
