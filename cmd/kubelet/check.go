package main

import (
	"errors"
	"fmt"
	"io"

	"keelson/internal/config"
	"keelson/internal/config/preflight"
)

// check prints all problems and warnings of a configuration, and returns the exit status:
// 1 if a kubelet would not start with it.
func check(cfg *config.Config, err error, out, complaints io.Writer) int {
	var problems config.Problems
	if err != nil && !errors.As(err, &problems) {
		fmt.Fprintln(complaints, "kubelet:", err)
		return 1
	}
	for _, w := range cfg.Warnings {
		fmt.Fprintln(complaints, "note:", w)
	}
	if problems = append(problems, preflight.Check(cfg, preflight.ThisHost())...); len(problems) > 0 {
		fmt.Fprintln(complaints, "kubelet:", problems)
		return 1
	}
	fmt.Fprintln(out, "the configuration is valid")
	return 0
}
