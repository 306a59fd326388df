"use strict";
// Where the page reads from: the episodes that it holds, and, once a kernel has answered, the whole run in windows.
((viewer) => {
  const { keyOf, known, parse, matches, kernelOf } = viewer;
  const WINDOW = 100,
    READ_AHEAD = 40,
    PATIENCE = 400;

  // The page's own index: columns, one entry per episode.
  function ownIndex(data, marks) {
    const columns = data.index,
      names = Object.keys(columns),
      texts = new Map();
    const count = data.episodes.length;
    const row = (place) => Object.fromEntries(names.map((name) => [name, columns[name][place]]));
    const places = new Map();
    for (let place = 0; place < count; place += 1) places.set(keyOf(row(place)), place);

    function text(place) {
      if (!texts.has(place)) {
        const { name, task, nodes } = data.episodes[place];
        const said = nodes.flatMap((node) => [node.heard, ...node.candidates.map((one) => one.said)]);
        texts.set(place, [task, name, ...said].join("\u0000").toLowerCase());
      }
      return texts.get(place);
    }

    function order({ sort, descending, filter }) {
      const terms = parse(filter),
        values = columns[sort] || columns.telling;
      const has = (place) =>
        matches(terms, { row: row(place), text: () => text(place), marked: () => marks.has(keyOf(row(place))) });
      const found = [];
      for (let place = 0; place < count; place += 1) if (!terms.length || has(place)) found.push(place);
      const read =
        sort === "advantage"
          ? (place) => (known(values[place]) ? Math.abs(values[place]) : null)
          : (place) => values[place];
      const way = descending ? -1 : 1;
      return found.sort((one, other) => {
        const [a, b] = [read(one), read(other)];
        if (!known(a) || !known(b)) return known(b) - known(a) || one - other; // what is not known stands last
        const less = typeof a === "string" ? a.localeCompare(b, "en", { numeric: true }) : a - b;
        return way * less || one - other;
      });
    }

    return { row, places, order, count };
  }

  function sourceOf(data, marks, changed, signal) {
    const own = ownIndex(data, marks);
    const episodes = new Map(),
      groups = new Map(Object.entries(data.groups || {}));
    let query = { sort: "telling", descending: true, filter: "" },
      order = own.order(query),
      view = null,
      note = "";
    let total = data.total ?? own.count;

    const kernel = kernelOf((hello) => {
      total = hello.total ?? total;
      request(true);
    }, signal);

    // The kernel's view replaces the page's own when its first window is here. Until then, and while a cell runs, the
    // page's own stands there.
    async function request(greeted = false) {
      const asked = { query, found: null, windows: new Map() };
      const late = setTimeout(
        () => {
          if (asked.query === query) fallBack("the kernel is busy");
        },
        greeted ? PATIENCE * 20 : PATIENCE,
      );
      try {
        await read(asked, 0);
        if (asked.query !== query) return;
        view = asked;
        note = "";
        changed(!greeted);
      } catch (trouble) {
        if (asked.query === query) fallBack(trouble.message);
      } finally {
        clearTimeout(late);
      }
    }

    function fallBack(why) {
      view = null;
      note = `${why}: these are the page's own episodes`;
      changed(true);
    }

    async function read(asked, place) {
      // the window of rows around a place
      const from = Math.floor(place / WINDOW) * WINDOW;
      if (asked.windows.has(from)) return asked.windows.get(from);
      const answer = kernel.ask({ ask: "index", ...asked.query, from, count: WINDOW }).then((told) => {
        const names = Object.keys(told.rows),
          count = names.length ? told.rows[names[0]].length : 0;
        asked.found = told.found;
        total = told.total ?? total;
        const rows = Array.from({ length: count }, (_, at) =>
          Object.fromEntries(names.map((name) => [name, told.rows[name][at]])),
        );
        asked.windows.set(from, rows);
        return rows;
      });
      asked.windows.set(from, answer);
      answer.catch(() => asked.windows.delete(from));
      return answer;
    }

    function row(place) {
      // null: not read yet; it will be, and `changed` is called
      if (!view) return place < order.length ? own.row(order[place]) : null;
      const from = Math.floor(place / WINDOW) * WINDOW,
        rows = view.windows.get(from);
      if (Array.isArray(rows)) return rows[place - from] || null;
      if (!rows)
        read(view, place).then(
          () => changed(false),
          () => {},
        );
      return null;
    }

    function find(key) {
      // its place in the view, or -1
      if (!view) return own.places.has(key) ? order.indexOf(own.places.get(key)) : -1;
      for (const [from, rows] of view.windows) {
        const at = Array.isArray(rows) ? rows.findIndex((one) => keyOf(one) === key) : -1;
        if (at >= 0) return from + at;
      }
      return -1;
    }

    async function nextFailure(place) {
      // the first failure after a place, and from the start again; null: there is no other
      const all = found(),
        many = Math.min(place < 0 ? all : all - 1, READ_AHEAD * WINDOW);
      for (let step = 1; step <= many; step += 1) {
        const at = (place + step) % all,
          one = row(at) || (view && (await read(view, at))[at % WINDOW]);
        if (one && one.success === false) return one;
      }
      return null;
    }

    const found = () => (view ? view.found : order.length);

    function ask(next) {
      query = { ...query, ...next };
      order = own.order(query);
      note = "";
      if (kernel.live) request();
      else changed(true);
    }

    async function open(wanted) {
      // the episode's data, or null where nobody has it
      const key = keyOf(wanted);
      if (own.places.has(key)) return data.episodes[own.places.get(key)];
      if (episodes.has(key)) return episodes.get(key);
      if (!kernel.live) return null;
      const { run = 0, step, episode } = wanted;
      const told = await kernel.ask({ ask: "episode", run, step, episode });
      for (const [name, members] of Object.entries(told.groups || {})) groups.set(name, members);
      episodes.set(key, told.episode);
      return told.episode;
    }

    const isHere = (wanted) => own.places.has(keyOf(wanted)) || episodes.has(keyOf(wanted));
    const has = (wanted) => kernel.live || own.places.has(keyOf(wanted));
    const rowOf = (key) => {
      const place = find(key);
      return place >= 0 ? row(place) : own.places.has(key) ? own.row(own.places.get(key)) : null;
    };

    const groupSize = (run, step, group) => groups.get(`${run}|${step}|${group}`)?.length ?? 0; // 0: not known

    async function members(run, step, group) {
      const name = `${run}|${step}|${group}`;
      if (!groups.has(name) && group && kernel.live)
        groups.set(name, (await kernel.ask({ ask: "group", run, step, group })).members);
      return groups.get(name) || [];
    }

    async function sameTask(shown) {
      // rows of the same task, elsewhere
      const other = (one) => one.task === shown.task && keyOf(one) !== keyOf(shown);
      const here = [...own.places.values()].map(own.row).filter(other);
      if (!kernel.live) return here;
      const asked = {
        ask: "index",
        sort: "step",
        descending: false,
        filter: `task:"${shown.task}"`,
        from: 0,
        count: WINDOW,
      };
      const { rows } = await kernel.ask(asked);
      const names = Object.keys(rows);
      return rows.task.map((_, at) => Object.fromEntries(names.map((name) => [name, rows[name][at]]))).filter(other);
    }

    return {
      row,
      rowOf,
      find,
      has,
      isHere,
      ask,
      open,
      members,
      groupSize,
      sameTask,
      nextFailure,
      found,
      first: () => own.row(0),
      get query() {
        return query;
      },
      get total() {
        return total;
      },
      get note() {
        return note;
      },
      get onPage() {
        return own.count;
      },
      get whole() {
        return view !== null;
      },
      tellMarks: (all) => kernel.tell({ ask: "marks", marks: all }),
    };
  }

  Object.assign(viewer, { sourceOf });
})(MasLabRollouts);
