/**
 * The words of passages in memory, ranked by BM25: SQLite's full-text search (FTS5), as Node has it built in. Keeps no text:
 * that is read from the file again when it is shown.
 */

/** Weight of a word in the path against one in the text. */
const pathWeight = 2

export interface Store extends Disposable {
  /** Everything until `commit` goes into the index together, which costs a fraction of each alone. */
  begin(): void
  commit(): void
  /** @param row a number of its own */
  add(row: number, path: string, text: string): void
  remove(row: number): void
  /** Rows that match, the best first. @param match of `matchOf` */
  find(match: string): Iterable<number>
  /** Memory that it takes. */
  readonly bytes: number
}

/** Words that are gathered before they are sorted into the index, in bytes: four times SQLite's default are a fifth less work. */
const gatherMaxBytes = 4 * 1024 * 1024
/** Parts of the index of about one size that are merged into one; at SQLite's default of 4 much is merged again and again. */
const mergedParts = 16

/**
 * SQLite is loaded with the first index: an agent that searches nothing has no use for it.
 * @param gatherBytes memory for what is not in the index yet; `bytes` does not count it
 */
export async function openStore(gatherBytes = gatherMaxBytes): Promise<Store> {
  const { DatabaseSync } = await import('node:sqlite')
  const database = new DatabaseSync(':memory:')
  database.exec(`
    PRAGMA journal_mode = OFF;
    PRAGMA temp_store = MEMORY;
    CREATE VIRTUAL TABLE passages USING fts5(
      path, text, content = '', contentless_delete = 1, tokenize = "porter unicode61 remove_diacritics 2"
    );
    INSERT INTO passages(passages, rank) VALUES ('hashsize', ${Math.round(Math.min(gatherBytes, gatherMaxBytes))});
    INSERT INTO passages(passages, rank) VALUES ('automerge', ${mergedParts});
  `)
  const add = database.prepare('INSERT INTO passages(rowid, path, text) VALUES (?, ?, ?)')
  const remove = database.prepare('DELETE FROM passages WHERE rowid = ?')
  const find = database.prepare(
    `SELECT rowid AS row FROM passages WHERE passages MATCH ? ORDER BY bm25(passages, ${pathWeight}, 1), rowid`,
  )
  const pages = database.prepare(
    'SELECT page_count * page_size AS bytes FROM pragma_page_count, pragma_page_size',
  )
  return {
    begin: () => database.exec('BEGIN'),
    commit: () => database.exec('COMMIT'),
    add: (row, path, text) => void add.run(row, path, text),
    remove: (row) => void remove.run(row),
    *find(match) {
      for (const found of find.iterate(match)) yield Number(found.row)
    },
    get bytes() {
      return Number(pages.get()?.bytes ?? 0)
    },
    [Symbol.dispose]: () => database.close(),
  }
}
