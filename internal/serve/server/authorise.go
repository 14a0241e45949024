package server

import (
	"fmt"
	"net/http"
)

// authorised rejects requests that are not authenticated or not authorized.
func (s *Server) authorised(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, err := s.cfg.Authenticator.Authenticate(r)
		if err != nil {
			s.logLimit.Do(func() {
				s.cfg.Log.Warn("failed to authenticate request", "err", err,
					"remote", r.RemoteAddr)
			})
		}
		if err != nil || user == nil {
			writeText(w, http.StatusUnauthorized, textUnauthorized)
			return
		}
		verb, rights := verbFor(r.Method), rightsFor(r.URL.Path)
		for _, right := range rights {
			ok, err := s.cfg.Authorizer.Allowed(r.Context(), user, verb, right)
			if err != nil {
				s.logLimit.Do(func() {
					s.cfg.Log.Error("failed to authorize request", "err", err, "user", user.Username, "verb", verb,
						"subresource",
						right)
				})
				writeText(w, http.StatusInternalServerError,
					fmt.Sprintf("Authorization error (user=%s, verb=%s, resource=nodes, subresource=%s)",
						user.Username, verb, right))
				return
			}
			if ok {
				next.ServeHTTP(w, r)
				return
			}
		}
		s.cfg.Log.Debug("request forbidden", "user", user.Username, "verb", verb, "subresources", rights)
		writeText(w, http.StatusForbidden,
			fmt.Sprintf("Forbidden (user=%s, verb=%s, resource=nodes, subresource(s)=%v)\n",
				user.Username, verb, rights))
	})
}
