package server

import (
	"io"
	"net/http"
	"net/http/pprof"
)

func (s *Server) configz() http.HandlerFunc {
	if s.cfg.KubeletConfig == nil {
		return nil
	}
	return func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, map[string]any{"kubeletconfig": s.cfg.KubeletConfig()})
	}
}

func (s *Server) pprof() http.HandlerFunc {
	if !s.cfg.ProfilingHandler {
		return disabled(textProfilingOff)
	}
	return onlyMethods(get, func(w http.ResponseWriter, r *http.Request) {
		switch r.PathValue("profile") {
		case "profile":
			pprof.Profile(w, r)
		case "symbol":
			pprof.Symbol(w, r)
		case "cmdline":
			pprof.Cmdline(w, r)
		case "trace":
			pprof.Trace(w, r)
		default:
			pprof.Index(w, r)
		}
	})
}

// verbosity sets the log level to the value in the body.
func (s *Server) verbosity() http.HandlerFunc {
	if !s.cfg.DebugFlagsHandler {
		return disabled(textFlagsOff)
	}
	if s.cfg.SetVerbosity == nil {
		return nil
	}
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPut {
			writeText(w, http.StatusNotAcceptable, "unsupported http method")
			return
		}
		body, err := io.ReadAll(r.Body)
		if err != nil {
			writeText(w, http.StatusBadRequest, "error reading request body: "+err.Error())
			return
		}
		text, err := s.cfg.SetVerbosity(string(body))
		if err != nil {
			writeText(w, http.StatusBadRequest, err.Error())
			return
		}
		writeText(w, http.StatusOK, text)
	}
}
