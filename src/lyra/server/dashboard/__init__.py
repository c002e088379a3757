"""The dashboard: pages for people, rendered on the server and kept live by server-sent events.

`PAGES` in `lyra.server.site` is the table of the pages. A page reads the kernel and writes HTML; every act is a request
that passes the guard of the API. How a page is written:

`html`      `tag("p", text, class_="note", data_pid=pid)` and `join(…)` give `Html`; every other text is escaped
`layout`    `page(call, title, *main, scripts=("x.js",), status=200, wide=False, lead="…")` is the whole answer, with
            the navigation and the header's figures; `lead` says below the heading what can be done here;
            `link(call, "processes", pid, query={…})` is the relative address of a page;
            `region(call, name, kinds, *children)` is a part that is fetched again when such an event happens, with
            `data_hold=True` not while a person points at its rows;
            `act_form(call, action, *fields, why_not="")` is a form that changes something: it carries the form token
            and is disabled, with the reason, for a person who may not
`words`     `state(name, word)`, `money(micro_usd)`, `moment(time, now)`, `duration(seconds)`,
            `render_copyable_id(text)`, `empty(what, command)`: the same value looks the same on every page
`html`      `table(caption, columns, rows)` with `TableColumn(label, is_figure)` and `TableRow(key, cells)`
`layout`    `call.parts.get_shared(HeaderFigures)`: the figures of the header
`login`     log-in and log-out; `login` shows errors; `layout` has the files of `static/`, each `*.css` of which is
            loaded by every page

An endpoint of a page is `Endpoint("pages.x", "GET", "/x", "The x", _x)`; one of a form has the group `acts` and the
method POST. Names of these two groups show errors as pages. In a handler `call.caller` has `person`, `role`, `name`
and `may_change`; `call.form` has the fields of a form; an answer to a form is `layout.see_other(call, "inbox")`.

`static/site.js` is loaded by every page and imports `live.js` (`onEvents(kinds, callback)`, `refresh(region)`,
`refreshAll()`), `morph.js`, `keys.js` (`addKeys(title, rows)`), `times.js`, `copy.js`, `static/acts.js`
(`act(path, body, method)` for a request of the API with the form token, `announce(text)`).
"""
