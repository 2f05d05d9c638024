/**
 * In-memory full-text index of passages with BM25 ranking: Node's built-in SQLite FTS5. Stores no text; results are
 * read from the file again.
 */

/** Weight of a match in the path relative to one in the text. */
const pathWeight = 2

export interface Store extends Disposable {
  /** Everything until `commit` is one transaction, which costs a fraction of separate ones. */
  begin(): void
  commit(): void
  /** @param row unique number */
  add(row: number, path: string, text: string): void
  remove(row: number): void
  /** Matching rows, best first. @param match from `matchOf` */
  find(match: string): Iterable<number>
  /** Memory in use, in bytes. */
  readonly bytes: number
}

/** Buffered bytes before merging into the index: four times SQLite's default saves a fifth of the work. */
const gatherMaxBytes = 4 * 1024 * 1024
/** Segments of similar size that are merged into one; SQLite's default of 4 merges repeatedly. */
const mergedParts = 16

/**
 * Loads SQLite with the first index: an agent that searches nothing does not need it.
 * @param gatherBytes buffer memory, not counted by `bytes`
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
