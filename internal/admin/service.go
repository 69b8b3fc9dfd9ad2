package admin

import (
	"fmt"
	"strings"
)

// notes are what a service has done that its row has no column for.
func (v *Service) notes() (list []string) {
	add := func(title, text string) {
		if text != "" {
			list = append(list, title+": "+text)
		}
	}
	ended := map[string]uint64{}
	for word, n := range v.Outcomes {
		if _, refused := v.Refused[word]; !refused {
			ended[word] = n
		}
	}
	add("ended", counts(ended))
	add("refused", counts(v.Refused))
	if v.TLS != nil {
		add("TLS", v.TLS.text())
	}
	if v.UDP != nil {
		add("datagrams", v.UDP.text())
		add("dropped", counts(v.UDP.Dropped))
	}
	return list
}

func (t *ServiceTLS) text() string {
	text := shortly(t.Handshakes, "handshake")
	if t.Handshakes > 0 {
		text += ", " + percent(float64(t.Resumed)/float64(t.Handshakes)) + " resumed"
	}
	if t.Active > 0 {
		text += fmt.Sprintf(", %d under way", t.Active)
	}
	return text
}

func (u *ServiceUDP) text() string {
	parts := []string{"in " + short(float64(u.DatagramsIn)), "out " + short(float64(u.DatagramsOut))}
	if r := u.Rates; r != nil {
		parts[0] += " (" + shortRate(r.In) + "/s)"
		parts[1] += " (" + shortRate(r.Out) + "/s)"
	}
	return strings.Join(parts, ", ")
}
