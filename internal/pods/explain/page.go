package explain

import (
	"fmt"
	"html"
	"strings"
	"time"
)

// style is the page's style sheet; the page loads no other files.
const style = `
:root{color-scheme:light dark;--ink:#1a1a1a;--dim:#6b7280;--rule:#d1d5db;--bar:#2563eb;--call:#93c5fd;--bad:#dc2626;--paper:#fff}
@media(prefers-color-scheme:dark){:root{--ink:#e5e7eb;--dim:#9ca3af;--rule:#374151;--bar:#60a5fa;--call:#1e3a8a;--bad:#f87171;--paper:#111827}}
body{font:15px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--paper);max-width:72rem;margin:2rem auto;padding:0 1rem}
h1{font-size:1.4rem;margin:0}h2{font-size:1rem;margin:2rem 0 .5rem}
.dim{color:var(--dim)}.bad{color:var(--bad)}code,td,th{font:13px/1.6 ui-monospace,monospace}
.verdict{border-left:4px solid var(--bar);padding:.5rem 1rem;margin:1rem 0}.verdict.bad{border-color:var(--bad);color:inherit}
table{border-collapse:collapse;width:100%}td,th{text-align:left;padding:.15rem .75rem .15rem 0;vertical-align:top;border-bottom:1px solid var(--rule)}
td.n{text-align:right;white-space:nowrap}td.name{white-space:nowrap}td.call{padding-left:1.5rem;color:var(--dim)}
td.track{width:60%;padding-right:0}.track div{height:.9em;margin-top:.25em;border-radius:2px;background:var(--bar);min-width:2px}
.track div.call{background:var(--call)}.track div.bad{background:var(--bad)}.track div.open{border-right:4px dotted var(--ink)}
`

// Page renders the explanation as a self-contained HTML page.
func Page(p *Pod) string {
	b := &strings.Builder{}
	e := html.EscapeString
	fmt.Fprintf(b,
		"<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\"><meta name=\"viewport\" "+
			"content=\"width=device-width\">\n<title>%s/%s</title>\n<style>%s</style>\n",
		e(p.Namespace), e(p.Name), style)
	fmt.Fprintf(b, "<h1>%s/%s</h1>\n<div class=\"dim\">%s%s, at %s</div>\n",
		e(p.Namespace), e(p.Name), e(p.UID), e(orNothing(" on node ", p.Node)), p.At.UTC().Format(time.RFC3339))
	class := "verdict"
	if bad(p.State) {
		class += " bad"
	}
	fmt.Fprintf(b, "<div class=\"%s\"><b>%s</b>%s<br>%s</div>\n",
		class, e(string(p.State)), e(forHow(p.Since, p.At)), e(p.Verdict))
	if len(p.Waits) > 0 {
		b.WriteString("<h2>Waits</h2>\n<table><tr><th>for<th>how long<th>why<th>next retry</tr>\n")
		for _, w := range p.Waits {
			next := ""
			if !w.Next.IsZero() {
				next = until(w.Next, p.At)
			}
			fmt.Fprintf(b, "<tr><td>%s<td class=\"n\">%s<td>%s <span class=\"bad\">%s</span><td>%s</tr>\n",
				e(w.For), since(w.Since, p.At), e(w.Reason), e(w.Error), next)
		}
		b.WriteString("</table>\n")
	}
	b.WriteString("<h2>Containers</h2>\n<table>\n")
	for _, c := range p.Containers {
		fmt.Fprintf(b, "<tr><td>%s<td>%s</tr>\n", e(c.Name), e(describe(c, p.At)))
	}
	b.WriteString("</table>\n")
	if len(p.Steps) > 0 {
		drawing(b, p)
	}
	b.WriteString("</html>\n")
	return b.String()
}

func bad(s State) bool { return s == Failing || s == Rejected || s == Stuck }

func since(t, at time.Time) string {
	if t.IsZero() {
		return ""
	}
	return short(at.Sub(t))
}

// drawing writes the waterfall diagram of the page.
func drawing(b *strings.Builder, p *Pod) {
	drawn, rest, whole := bars(p)
	e := html.EscapeString
	fmt.Fprintf(b, "<h2>Start: %s</h2>\n<table><tr><th>step<th>after<th>took<th></tr>\n",
		short(whole))
	share := func(d time.Duration) float64 { return 100 * float64(d) / float64(max(whole, 1)) }
	for _, d := range drawn {
		cell, div := "name", ""
		if d.depth > 0 {
			cell, div = "name call", "call"
		}
		if d.err != "" {
			div = "bad"
		}
		if d.open {
			div += " open"
		}
		fmt.Fprintf(b,
			"<tr title=\"%s\"><td class=\"%s\">%s<td class=\"n\">%s<td class=\"n\">%s<td class=\"track\"><div "+
				"class=\"%s\" style=\"margin-left:%.3f%%;width:%.3f%%\"></div>",
			e(d.why), cell, e(d.name), short(d.from), short(d.to-d.from), strings.TrimSpace(div),
			share(d.from), share(d.to-d.from))
		if d.err != "" {
			fmt.Fprintf(b, "<span class=\"bad\">%s</span>", e(d.err))
		}
		b.WriteString("</tr>\n")
	}
	b.WriteString("</table>\n")
	if !p.Ready.IsZero() && !p.Arrived.IsZero() {
		fmt.Fprintf(b, "<p>Ready %s after the agent received it.</p>\n", short(p.Ready.Sub(p.Arrived)))
	}
	if len(rest) == 0 {
		return
	}
	b.WriteString("<h2>Later</h2>\n<table>\n")
	for _, s := range rest {
		fmt.Fprintf(b, "<tr><td>%s<td class=\"n\">%s<td>%s <span class=\"bad\">%s</span></tr>\n",
			e(nameOf(s)), ago(s.Began, p.At), e(s.Why), e(s.Error))
	}
	b.WriteString("</table>\n")
}
