package config

import "log/slog"

// LogLevel is slog's level for a verbosity: 0 is Info, 4 is Debug.
func LogLevel(verbosity uint32) slog.Level { return slog.Level(-int(min(verbosity, 1<<20))) }
