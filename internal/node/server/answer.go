package server

import (
	"bufio"
	"encoding/json"
	"net"
	"net/http"
)

// writeText answers with a plain sentence. A caller that has gone cannot be
// told so, which is why nobody looks at the error of the write.
func writeText(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_, _ = w.Write([]byte(text))
}

// writeJSON answers with v.
func writeJSON(w http.ResponseWriter, v any) {
	b, err := jsonLine(v)
	if err != nil {
		writeText(w, http.StatusInternalServerError, "encode answer: "+err.Error())
		return
	}
	writeJSONBytes(w, b)
}

func jsonLine(v any) ([]byte, error) {
	b, err := json.Marshal(v)
	return append(b, '\n'), err
}

func writeJSONBytes(w http.ResponseWriter, b []byte) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(b)
}

// recorder remembers the status of an answer. It passes on what streams need
// from the writer below.
type recorder struct {
	http.ResponseWriter
	status   int
	hijacked bool
}

func (r *recorder) WriteHeader(status int) {
	if r.status == 0 {
		r.status = status
	}
	r.ResponseWriter.WriteHeader(status)
}

func (r *recorder) Write(b []byte) (int, error) {
	if r.status == 0 {
		r.status = http.StatusOK
	}
	return r.ResponseWriter.Write(b)
}

// Unwrap is for http.ResponseController.
func (r *recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }

// Flush sends what was written so far.
func (r *recorder) Flush() {
	// The error says that the writer cannot flush or the caller has gone; the
	// next write tells.
	_ = http.NewResponseController(r.ResponseWriter).Flush()
}

// Hijack hands the connection to a stream.
func (r *recorder) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	c, b, err := http.NewResponseController(r.ResponseWriter).Hijack()
	if err == nil {
		r.hijacked = true
		if r.status == 0 {
			r.status = http.StatusSwitchingProtocols
		}
	}
	return c, b, err
}
