package daemon

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"time"

	"github.com/poise-lb/poise/health"
	"github.com/poise-lb/poise/internal/admin"
	"github.com/poise-lb/poise/internal/config"
	"github.com/poise-lb/poise/internal/spool"
	"github.com/poise-lb/poise/l4/balance"
	"github.com/poise-lb/poise/l4/sock"
)

// A change is a configuration of which everything that can fail has been done
// and nothing has taken effect.
type change struct {
	next         *generation
	found        func() // makes names and files of next those that are watched
	socket, http endpoint
	access       io.Writer // where the access log goes; only if moveAccess
	moveAccess   bool
}

// apply makes file the configuration that runs, and returns what changed. On
// error nothing has. Files and names may keep it waiting; nothing else waits for it, and
// what is discovered meanwhile takes effect after it.
func (d *Daemon) apply(file *config.File) (changes []string, err error) {
	defer d.discovery.tell()
	d.applying.Lock()
	defer d.applying.Unlock()
	old := d.generation.Load()
	c, err := d.prepare(file)
	if err != nil {
		return nil, hidden(file, err)
	}
	if err := d.commit(c); err != nil {
		d.abort(c)
		return nil, hidden(file, err)
	}
	changes = append(diff(old.file, file), fileChanges(old, c.next)...)
	if n := file.Runtime.Workers; n != d.workers {
		changes = append(changes, fmt.Sprintf("runtime: workers %d -> %s takes a restart", d.workers, file.Told("runtime.workers", strconv.Itoa(n))))
	}
	return changes, nil
}

// prepare does what waits for files and names, which can fail, and undoes it if
// something does.
func (d *Daemon) prepare(file *config.File) (_ *change, err error) {
	old := d.generation.Load()
	c := &change{next: d.plan(file)}
	defer func() {
		if err != nil {
			d.abort(c)
		}
	}()
	if err := errors.Join(c.next.planServices(old), c.next.planUpstreams(), c.next.planFiles(), c.next.mayConnect()); err != nil {
		return nil, err
	}
	if err := d.prepareAccess(c, file.Log); err != nil {
		return nil, fmt.Errorf("log.access: %w", err)
	}
	if err := d.prepareAdmin(c, file.Admin); err != nil {
		return nil, err
	}
	c.found = d.discovery.prepare(d.reloads.ending, old.file, file)
	return c, nil
}

// plan decides which object of those that exist serves for which of the new
// configuration, and makes those that are missing. Nothing sees them yet.
func (d *Daemon) plan(file *config.File) *generation {
	g, old := &generation{file: file}, d.generation.Load()
	g.leaving = slices.Clone(old.leaving)
	for _, spec := range file.Pools {
		name := spec.Balance.Name
		p := &pool{Pool: spec}
		if before := old.pool(name); before != nil {
			p.balance, p.outlier, p.mood = before.balance, before.outlier, before.mood
		} else {
			p.outlier, p.mood = health.NewOutlier(p.Passive, d.circuit), &mood{}
		}
		if i := slices.IndexFunc(g.leaving, func(l leavingPool) bool { return l.Name() == name }); i >= 0 {
			p.balance = g.leaving[i].Pool
			g.leaving = slices.Delete(g.leaving, i, i+1)
		}
		if p.balance == nil {
			p.balance = balance.New(balance.Spec{Name: name, Algorithm: spec.Balance.Algorithm, AB: spec.Balance.AB}, nil)
		}
		g.pools = append(g.pools, p)
	}
	for _, p := range old.pools {
		if g.pool(p.Balance.Name) == nil {
			g.leaving = append(g.leaving, leavingPool{p.balance, time.Now()})
		}
	}
	return g
}

func (d *Daemon) prepareAccess(c *change, log config.Log) error {
	if log.Access == d.accessTarget && log.AccessFormat == d.accessFormat {
		return nil
	}
	c.moveAccess = true
	switch log.Access {
	case "none":
	case "stdout":
		c.access = d.options.Stdout
	default:
		f, err := spool.Open(log.Access)
		if err != nil {
			return err
		}
		c.access = f
	}
	return nil
}

func (d *Daemon) prepareAdmin(c *change, want config.Admin) error {
	c.socket, c.http = d.socket, d.http
	if want.Socket != d.socket.addr {
		server, err := admin.ListenSocket(want.Socket, d, d.adminRoom(), d.log)
		if err != nil {
			return err
		}
		c.socket = endpoint{want.Socket, server}
	}
	if want.HTTP != d.http.addr {
		c.http = endpoint{addr: want.HTTP}
		if want.HTTP == "" {
			return nil
		}
		server, err := admin.ListenHTTP(want.HTTP, d, d.metrics, d.adminRoom(), d.log)
		if err != nil {
			return err
		}
		c.http.server = server
	}
	return nil
}

// adminRoom is what clients of one admin endpoint may take up. There are two of them,
// and half of what is kept back stays for checks, names and files.
func (d *Daemon) adminRoom() admin.Room {
	return admin.Room{Places: func() int { return sock.KeptBack() / 4 }, Count: d.data.descriptors.Aside}
}

// abort undoes what prepare has done.
func (d *Daemon) abort(c *change) {
	if c.found != nil {
		d.discovery.names.Set(nameTargets(d.generation.Load().file))
	}
	if f, ok := c.access.(*spool.File); ok {
		_ = f.Close() // nothing was written
	}
	if c.socket.server != d.socket.server {
		c.socket.close(d.log)
	}
	if c.http.server != d.http.server {
		c.http.close(d.log)
	}
	old := d.generation.Load()
	for _, p := range c.next.pools {
		if old.pool(p.Balance.Name) == nil {
			p.outlier.Close()
		}
	}
}

// commit binds what is new, and then lets the change take effect: nothing after that
// can fail. If it cannot bind, nothing has changed. It waits for no file and no name.
func (d *Daemon) commit(c *change) error {
	d.committing.Lock()
	defer d.committing.Unlock()
	if d.phase.Load() == stopping {
		return errStopping
	}
	routing, err := d.data.prepare(c.next.routes())
	if err != nil {
		return err
	}
	old, next := d.generation.Load(), c.next
	d.logging.set(next.file.Log)
	c.found()
	for i, p := range next.pools {
		next.pools[i] = p.with(d.discovery.backends(p.Pool))
	}

	for _, p := range next.pools {
		p.outlier.Update(p.Passive, p.keys())
	}
	d.verdicts.Lock()
	for _, p := range next.pools {
		d.update(p)
	}
	d.operator.forget(next.pools)
	next.index()
	d.generation.Store(next)
	for _, p := range old.pools {
		if next.pool(p.Balance.Name) == nil {
			d.depart(p, p.balance.Backends(), time.Now().Add(settling))
		}
	}
	d.verdicts.Unlock()
	d.journal.keep(next.members)
	d.monitor.Set(next.targets())
	scheduleFor(len(d.data.loops), next)
	routing.commit()
	for _, p := range old.pools {
		if next.pool(p.Balance.Name) == nil {
			p.outlier.Close()
		}
	}

	if c.moveAccess {
		d.access.Switch(c.access, next.file.Log.AccessFormat)
		d.accessTarget, d.accessFormat = next.file.Log.Access, next.file.Log.AccessFormat
	}
	d.operator.use(next.file.Admin.State)
	d.retire(d.socket, c.socket)
	d.retire(d.http, c.http)
	d.socket, d.http = c.socket, c.http
	if d.http.server != nil {
		d.http.server.AnswerTo(next.file.Admin.Hosts)
	}
	return nil
}

// retire closes an admin endpoint that another one has replaced. It does not
// wait: the reload may have come in through it, and its answer has to go out.
func (d *Daemon) retire(old, now endpoint) {
	if old.server != now.server {
		d.background.Go(func() { old.close(d.log) })
	}
}
