package memhttp

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestRoundTrip(t *testing.T) {
	c := &http.Client{Transport: Transport(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		w.Header().Set("X-Seen", r.Method+" "+r.URL.Path)
		w.WriteHeader(http.StatusTeapot)
		fmt.Fprintf(w, "got %s", body)
	}))}
	res, err := c.Post("http://x/a", "text/plain", strings.NewReader("hello"))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != http.StatusTeapot || res.Header.Get("X-Seen") != "POST /a" ||
		string(body) != "got hello" {
		t.Errorf("%d %q %q %v", res.StatusCode, res.Header, body, err)
	}
}

func TestStreamInVirtualTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gone := make(chan struct{})
		c := &http.Client{Transport: Transport(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			defer close(gone)
			w.(http.Flusher).Flush()
			for i := 0; ; i++ {
				select {
				case <-time.After(time.Minute):
					fmt.Fprintln(w, i)
				case <-r.Context().Done():
					return
				}
			}
		}))}
		begin := time.Now()
		res, err := c.Get("http://x/")
		if err != nil || time.Since(begin) != 0 {
			t.Fatalf("header after %v, %v", time.Since(begin), err)
		}
		lines := bufio.NewScanner(res.Body)
		for want := range 3 {
			if !lines.Scan() || lines.Text() != fmt.Sprint(want) {
				t.Fatalf("line %q, %v", lines.Text(), lines.Err())
			}
		}
		if took := time.Since(begin); took != 3*time.Minute {
			t.Errorf("three lines after %v", took)
		}
		res.Body.Close()
		<-gone // the handler notices
	})
}

func TestAbort(t *testing.T) {
	early := &http.Client{Transport: Transport(
		http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }))}
	if _, err := early.Get("http://x/"); !errors.Is(err, io.EOF) {
		t.Errorf("before the header: %v", err)
	}
	late := &http.Client{Transport: Transport(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	}))}
	res, err := late.Get("http://x/")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(res.Body); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("after the header: %v", err)
	}
}

func TestClientGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gone := make(chan struct{})
		c := &http.Client{Transport: Transport(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			<-r.Context().Done()
			close(gone)
		}))}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://x/", nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Do(req); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v", err)
		}
		<-gone
	})
}
