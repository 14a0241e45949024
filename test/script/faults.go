package script

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"google.golang.org/grpc/codes"

	"keelson/test/kit/apiproxy"
	"keelson/test/kit/fakecri"
)

type fault interface {
	Release()
	Hit() <-chan struct{}
}

func (r *Run) fault(args []string) error {
	o, err := options(args[2:],
		"pod", "container", "image", "skip", "times", "delay", "fail", "hang", "after", "lie", "idle", "dies", "late")
	if err != nil {
		return err
	}
	f := fakecri.Fault{
		Method:    unlessAny(args[1]),
		Lie:       o["lie"],
		Pod:       o["pod"],
		Container: o["container"],
		Image:     o["image"],
		Message:   o["fail"],
	}
	if _, fails := o["fail"]; fails {
		f.Code = codes.Unknown
	}
	_, f.Hang = o["hang"]
	_, f.After = o["after"]
	_, f.Idle = o["idle"]
	_, f.Dies = o["dies"]
	if s, ok := o["late"]; ok {
		if f.Late, err = seconds(s); err != nil {
			return err
		}
	}
	if err := numbers(o, &f.Skip, &f.Times, &f.Delay); err != nil {
		return err
	}
	r.faults[args[0]] = r.Runtime.Inject(f)
	return nil
}

// unlessAny is the selector of a fault: the word any selects everything.
func unlessAny(s string) string {
	if s == "any" {
		return ""
	}
	return s
}

func numbers(o map[string]string, skip, times *int, delay *time.Duration) error {
	var errs [3]error
	if s, ok := o["skip"]; ok {
		*skip, errs[0] = strconv.Atoi(s)
	}
	if s, ok := o["times"]; ok {
		*times, errs[1] = strconv.Atoi(s)
	}
	if s, ok := o["delay"]; ok {
		*delay, errs[2] = seconds(s)
	}
	return errors.Join(errs[:]...)
}

func (r *Run) apiFault(args []string) error {
	o, err := options(args[3:], "name", "skip", "times", "delay", "code", "retry", "drop", "hang", "after")
	if err != nil {
		return err
	}
	f := apiproxy.Fault{Verb: unlessAny(args[1]), Resource: unlessAny(args[2]), Name: o["name"]}
	if s, ok := o["retry"]; ok {
		if f.RetryAfter, err = seconds(s); err != nil {
			return err
		}
	}
	_, f.Drop = o["drop"]
	_, f.Hang = o["hang"]
	_, f.After = o["after"]
	if s, ok := o["code"]; ok {
		if f.Code, err = strconv.Atoi(s); err != nil {
			return err
		}
	}
	if err := numbers(o, &f.Skip, &f.Times, &f.Delay); err != nil {
		return err
	}
	r.faults[args[0]] = r.Proxy.Inject(f)
	return nil
}

func (r *Run) hit(args []string) error {
	f, ok := r.faults[args[0]]
	if !ok {
		return fmt.Errorf("there is no fault %s", args[0])
	}
	select {
	case <-f.Hit():
		return nil
	case <-time.After(waitLimit):
		return fmt.Errorf("no call has met fault %s within %s", args[0], waitLimit)
	}
}

// hanging fails if a fault holds more calls now than the limit.
func (r *Run) hanging(args []string) error {
	f, ok := r.faults[args[0]].(interface{ Waiting() int })
	if !ok {
		return fmt.Errorf("there is no fault %s of the runtime", args[0])
	}
	limit, err := strconv.Atoi(args[1])
	if err == nil && f.Waiting() > limit {
		err = fmt.Errorf("%d calls hang", f.Waiting())
	}
	return err
}

func (r *Run) release(args []string) error {
	f, ok := r.faults[args[0]]
	if !ok {
		return fmt.Errorf("there is no fault %s", args[0])
	}
	f.Release()
	return nil
}
