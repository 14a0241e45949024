package server

import (
	"net/http"
	"net/url"
	"strings"

	gwebsocket "github.com/gorilla/websocket"
	constants "k8s.io/apimachinery/pkg/util/portforward"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"
)

// tunnel joins a WebSocket that carries a SPDY connection to the SPDY connection of the runtime.
func (s *Server) tunnel(w http.ResponseWriter, r *http.Request, target *url.URL) {
	header := http.Header{
		httpstream.HeaderConnection: {httpstream.HeaderUpgrade},
		httpstream.HeaderUpgrade:    {spdy.HeaderSpdy31},
	}
	for _, p := range subprotocols(r) {
		if inner, ok := strings.CutPrefix(p, constants.WebsocketsSPDYTunnelingPrefix); ok &&
			strings.HasSuffix(p, constants.KubernetesSuffix) {
			header.Add(httpstream.HeaderProtocolVersion, inner)
		}
	}
	back, resp, err := dialUpgrade(r.Context(), http.MethodPost, target, header)
	if err != nil {
		writeText(w, http.StatusInternalServerError, err.Error())
		return
	}
	defer back.Close()
	if resp.StatusCode != http.StatusSwitchingProtocols {
		writeRefusal(w, resp)
		return
	}
	if !strings.EqualFold(resp.Header.Get(httpstream.HeaderUpgrade), spdy.HeaderSpdy31) {
		writeText(w, http.StatusInternalServerError, "unable to upgrade: missing upgrade headers in response")
		return
	}
	upgrader := gwebsocket.Upgrader{
		// The request was authenticated by credentials that a web page cannot add.
		CheckOrigin: func(*http.Request) bool { return true },
	}
	if chosen := strings.TrimSpace(resp.Header.Get(httpstream.HeaderProtocolVersion)); chosen != "" {
		upgrader.Subprotocols = []string{constants.WebsocketsSPDYTunnelingPrefix + chosen}
	}
	front, err := upgrader.Upgrade(w, r, nil)
	if err != nil {
		s.cfg.Log.Debug("failed to upgrade to WebSocket", "err", err, "remote", r.RemoteAddr)
		return // Upgrade has written the response
	}
	join(r.Context(), portforward.NewTunnelingConnection("server", front), back, s.cfg.StreamIdleTimeout)
}
