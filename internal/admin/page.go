package admin

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"html/template"
	"net/http"
	"strings"
	"time"
)

//go:embed page.css
var pageStyle string

//go:embed page.html
var pageSource string

// contentPolicy allows the page its own style sheet and icon, and nothing else.
var contentPolicy = func() string {
	sum := sha256.Sum256([]byte(pageStyle))
	return "default-src 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) +
		"'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
}()

var page = template.Must(template.New("page").Funcs(template.FuncMap{
	"style":   func() template.CSS { return template.CSS(pageStyle) },
	"short":   func(n any) string { return short(float(n)) },
	"denied":  func(n uint64) string { return shortly(n, "retry") },
	"rate":    shortRate,
	"seconds": seconds,
	"since":   func(now, t time.Time) string { return ago(now.Sub(t)) },
	"clock":   func(t time.Time) string { return t.Format("2006-01-02 15:04:05 MST") },
	"latency": latency,
	"percent": percent,
	"join":    func(list []string) string { return strings.Join(list, " ") },
}).Parse(pageSource))

func float(n any) float64 {
	switch n := n.(type) {
	case uint64:
		return float64(n)
	case int64:
		return float64(n)
	case int:
		return float64(n)
	}
	return n.(float64)
}

// pageView is a Status with what only the page shows.
type pageView struct {
	Status
	Paused   bool
	Up, All  int     // backends, without those that are removed or on standby
	NewRate  float64 // connections a second over all services
	Served   []serviceView
	Certs    []certificateView
	PoolView []poolView
}

type serviceView struct {
	*Service
	Notes []string
}

type poolView struct {
	*Pool
	Wanted  int // backends; up or to be missed
	Standby int // and those beside them
	Rows    []backendView
}

type backendView struct {
	*Backend
	Sprayed string
	Trouble string
	Tone    tone // of the trouble
	Share   int  // percent of the pool's connections
}

func view(s Status) *pageView {
	v := &pageView{Status: s, Certs: s.certificates()}
	for i := range s.Services {
		v.Served = append(v.Served, serviceView{&s.Services[i], s.Services[i].notes()})
		if r := s.Services[i].Rates; r != nil {
			v.NewRate += r.Connections
		}
	}
	for i := range s.Pools {
		p := poolView{Pool: &s.Pools[i]}
		var conns int64
		for _, b := range p.Backends {
			conns += b.Connections
		}
		for j := range p.Backends {
			b := &p.Backends[j]
			row := backendView{Backend: b, Sprayed: b.sprayed(), Trouble: b.trouble(s.Now)}
			switch stateColours[b.State] {
			case red:
				row.Tone = bad
			case yellow:
				row.Tone = warn
			}
			if conns > 0 {
				row.Share = int(b.Connections * 100 / conns)
			}
			p.Rows = append(p.Rows, row)
		}
		var up int
		up, p.Wanted, p.Standby = p.count()
		v.Up += up
		v.All += p.Wanted
		v.PoolView = append(v.PoolView, p)
	}
	return v
}

// writePage answers with the status page. It reloads itself unless the query
// says refresh=off, for which it has a link: what moves must be possible to stop
// (WCAG 2.2.2).
func writePage(w http.ResponseWriter, r *http.Request, s Status) {
	v := view(s)
	v.Paused = r.URL.Query().Get("refresh") == "off"
	var out bytes.Buffer
	if err := page.Execute(&out, v); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_, _ = w.Write(out.Bytes())
}
