package probe

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// FuzzHTTPAnswer probes a container that sends arbitrary responses.
func FuzzHTTPAnswer(f *testing.F) {
	f.Add([]byte("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"), "/healthz", "")
	f.Add([]byte("HTTP/1.1 302 Found\r\nLocation: http://elsewhere/\r\n\r\n"), "/", "X-A")
	f.Add([]byte("HTTP/1.1 302 Found\r\nLocation: /again\r\n\r\n"), "", "Host")
	f.Add([]byte("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffff\r\n"), "a?b#c", "Accept")
	f.Add([]byte("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 503 x\r\n\r\n"), "/%zz", "\n")
	f.Fuzz(func(t *testing.T, answer []byte, path, header string) {
		p := handlers()
		hosts := map[string]bool{}
		p.web = p.web.Clone()
		p.web.DialContext = func(_ context.Context, _, address string) (net.Conn, error) {
			hosts[address] = true
			here, there := net.Pipe()
			go func() {
				defer there.Close()
				_ = there.SetDeadline(time.Now().Add(5 * time.Second))
				if req, err := http.ReadRequest(bufio.NewReader(there)); err == nil {
					_, _ = io.Copy(there, bytes.NewReader(answer))
					_ = req.Body.Close()
				}
			}()
			return here, nil
		}
		get := &v1.HTTPGetAction{
			Path:        path,
			Port:        intstr.FromInt(80),
			HTTPHeaders: []v1.HTTPHeader{{Name: header, Value: "v"}},
		}
		o, text := p.http(t.Context(), get, &v1.Container{}, "10.0.0.1", 10*time.Second)
		if len(text) > maxOutput+200 && o != failure {
			t.Errorf("%d bytes are reported of the answer", len(text))
		}
		for address := range hosts {
			if host, _, err := net.SplitHostPort(address); err != nil || host != "10.0.0.1" {
				t.Errorf("%s was asked, want the pod alone", address)
			}
		}
		if resp, err := http.ReadResponse(bufio.NewReader(bytes.NewReader(answer)), nil); o == success && err == nil &&
			resp.StatusCode >= 400 {
			t.Errorf("an answer of %d counts as success", resp.StatusCode)
		}
	})
}
