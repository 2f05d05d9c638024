import { describe, expect, it } from 'vitest'
import { drawMermaid, drawSvg } from '../../workflows/draw.ts'
import { WorkspaceManager } from '../../workflows/workspace-manager.ts'

const example = new URL('../../../examples/workflows/review.workflow.json', import.meta.url)
const manager = new WorkspaceManager()

/** A workflow of two steps; the second one has this name. */
function named(name: string) {
  const step = { chat: [{ role: 'user', content: 'x' }] }
  return manager.parse(
    JSON.stringify({
      'A@1#details': { steps: [{ id: 'a' }, { id: 'b', name }] },
      'A@1@step-a#details': { ...step, nextStep: [{ when: `input == '"]<b>'`, step: 'b' }, { step: '-' }] },
      'A@1@step-b#details': { ...step, onFailure: 'continue' },
    }),
  )
}

describe('the drawing of a workflow', () => {
  it('is a Mermaid flowchart of its steps, cases and failures [S3.12]', async () => {
    expect(drawMermaid(await manager.load(example))).toMatchInlineSnapshot(`
      "flowchart TD
        start((start)) --> s0
        s0["read"]
        s0 --> s1
        s1["estimate<br>for each of steps.read.output.tasks"]
        s1 --> s2
        s2[["small: Small enough#63;<br>call sum#95;hours"]]
        s2 -->|"steps.small.output.hours #60;= 8"| s4
        s2 -->|"else"| s3
        s3{{"approve<br>ask"}}
        s3 -->|"steps.approve.output == #39;yes#39;"| s4
        s3 -->|"else"| s5
        s4["write"]
        s4 --> done
        s5["refuse"]
        s5 --> done
        done((end))
      "
    `)
  })

  it('is an SVG image [S3.12]', async () => {
    const svg = await drawSvg(await manager.load(example))
    for (const text of ['read', 'Small enough?', 'call sum_hours', 'else', 'for each of'])
      expect(svg).toContain(text)
    expect(svg.match(/class="node"/g)).toHaveLength(8)
    expect(svg.match(/class="edge"/g)).toHaveLength(9)
  })

  it.each([
    'x"] --> s0; click s0 "javascript:alert(1)"',
    '</text><script>alert(1)</script>',
    '&lt;script&gt; &amp; \\N \\n \\',
    '`x` #quot; %%{init: {}}%%',
    '\u202eabc',
  ])('shows the name %s as text', async (name) => {
    const data = named(name)
    const mermaid = drawMermaid(data)
    const boxes = mermaid.split('\n').filter((line) => line.startsWith('  s1['))
    expect(boxes).toHaveLength(1)
    expect(boxes[0]).toMatch(/^ {2}s1\["[\p{L}\p{N} ,.:;()=+\-*/#]*"\]$/u)
    const svg = await drawSvg(data)
    expect(svg).not.toMatch(/<script|javascript:alert\(1\)"\s*>/i)
    expect(svg.match(/<text/g)?.length).toBeGreaterThan(3)
  })
})
